"""nsqfast-nsq-to-http sends the messages of a channel as HTTP requests, and finishes each once it was answered."""
