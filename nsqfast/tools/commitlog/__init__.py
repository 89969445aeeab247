"""nsqfast-commitlog measures a disk for a commit log, and looks at a ring without changing it."""
