"""nsqlookupd: the directory of nsqd and their topics."""
