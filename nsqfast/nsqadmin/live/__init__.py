"""What the cluster looks like now, and what it looked like: one poll for all viewers."""
