"""The directory of who produces what: an nsqlookupd."""
