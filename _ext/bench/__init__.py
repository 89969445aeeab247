"""What nsqfast-bench ships: connections that make load without Python."""
