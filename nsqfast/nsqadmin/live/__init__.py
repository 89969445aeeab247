"""The current and past state of the cluster: one poll for all viewers."""
