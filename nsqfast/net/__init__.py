"""Sockets and HTTP; nothing here knows about NSQ."""
