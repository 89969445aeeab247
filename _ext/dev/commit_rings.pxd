"""Exports nothing to other modules."""
