"""Changing the cluster: what an action touches, doing it, and what became of it."""
