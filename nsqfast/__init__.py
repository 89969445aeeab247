"""NSQ for people who live in Python: wire- and data-directory-compatible with NSQ 1.3.0."""

__version__ = "0.1.0"

# The release of NSQ whose protocol, files and answers this one gives.
NSQ_VERSION = "1.3.0"
