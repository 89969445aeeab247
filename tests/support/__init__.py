"""What several test folders share: starting brokers, talking to them byte by byte."""
