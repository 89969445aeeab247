"""NSQ for people who live in Python: wire- and data-directory-compatible with NSQ 1.3.0."""

__version__ = "0.1.0"

# The NSQ release whose protocol, files and answers this package reproduces.
NSQ_VERSION = "1.3.0"
