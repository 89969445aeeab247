"""Asking and telling nsqd and nsqlookupd over HTTP."""
