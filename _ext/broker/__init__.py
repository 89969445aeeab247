"""Topics, channels and their consumers: who gets which message, and when again."""
