"""The pages, and what every response goes through."""
