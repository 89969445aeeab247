"""nsqfast-replay: publish again what nsq_to_file wrote."""
