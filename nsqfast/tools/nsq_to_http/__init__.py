"""nsqfast-nsq-to-http: the messages of a channel as HTTP requests, each finished once it was answered."""
