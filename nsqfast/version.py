"""Which release this is, and of which NSQ."""

__version__ = "0.2.0"

# The NSQ release whose protocol, files and answers this package reproduces.
NSQ_VERSION = "1.3.0"
