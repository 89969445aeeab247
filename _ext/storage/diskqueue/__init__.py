"""Queues on disk in the format of go-diskqueue, and what brings them safely there and back."""
