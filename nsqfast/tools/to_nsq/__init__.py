"""nsqfast-to-nsq: standard input is cut into messages, which are published."""
