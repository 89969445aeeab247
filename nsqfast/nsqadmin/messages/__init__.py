"""Looking at messages: those that wait, and those that arrive."""
