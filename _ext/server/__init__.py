"""Connections of clients: their bytes and deadlines, and the commands they send."""
