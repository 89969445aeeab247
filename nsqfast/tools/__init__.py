"""Programs that come with the broker."""
