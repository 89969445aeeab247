"""The cluster: asking its nodes and telling them, its state at one tick, and what it was before."""
