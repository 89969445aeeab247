"""Looking at messages: waiting ones, and new ones."""
