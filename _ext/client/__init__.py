"""The compiled half of nsqfast.client: connections, what waits on them, and messages as columns."""
