"""Sockets and HTTP, knowing nothing of NSQ."""
