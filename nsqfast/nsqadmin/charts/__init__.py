"""Charts: what each page draws, the points behind it, and the pictures of Graphite."""
