"""Numbers about a running program that are no topic's or channel's own."""
