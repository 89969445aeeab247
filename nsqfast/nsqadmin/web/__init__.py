"""The pages, and the handling common to all responses."""
