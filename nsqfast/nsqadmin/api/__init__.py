"""NSQ's own JSON API, for scripts."""
