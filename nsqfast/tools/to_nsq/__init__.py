"""nsqfast-to-nsq splits standard input into messages and publishes them."""
