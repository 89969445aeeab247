"""nsqfast-nsq-to-file writes topics to files, with every message on disk before it is finished."""
