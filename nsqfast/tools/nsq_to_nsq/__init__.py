"""nsqfast-nsq-to-nsq publishes the messages of a channel to other nsqds."""
