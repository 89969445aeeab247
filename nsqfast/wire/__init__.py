"""What stands on the wire, for Python: protocol numbers, names, IDENTIFY, refusals, and texts and JSON as Go does."""
