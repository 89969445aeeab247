"""Changes to the cluster: their effect, their execution, and their results."""
