"""Charts: the lines of each page, their points, and the pictures of Graphite."""
