"""Messages: waiting ones are shown and changed, new ones are shown as they arrive."""
