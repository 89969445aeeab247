"""nsqfast-nsq-to-nsq: what a channel gets is published to other nsqds."""
