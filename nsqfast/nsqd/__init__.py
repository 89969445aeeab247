"""The broker daemon: settings, start and stop, metadata and the HTTP API around the compiled core."""
