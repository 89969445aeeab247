"""A worker in ten lines: handlers of channels, what they need, and how the process that runs them begins and ends.

An App stands on nsqfast.client alone; docs/howto/worker.md shows how to use it.
"""
