"""The commit log: a ring of files in which a batch of records is committed by one write."""
