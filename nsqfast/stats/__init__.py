"""Figures about a running program that do not belong to a topic or channel."""
