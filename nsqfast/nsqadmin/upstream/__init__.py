"""Queries and commands to nsqd and nsqlookupd over HTTP."""
