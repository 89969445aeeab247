"""nsqfast-replay publishes the archives of nsq_to_file again."""
