"""nsqfast-nsq-tail: prints the messages of topics."""
