"""Nothing of this is for other modules."""
