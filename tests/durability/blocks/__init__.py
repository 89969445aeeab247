"""Power cuts beneath real file systems: block writes and flushes are logged, then replayed in part."""
