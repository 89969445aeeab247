"""nsqfast-nsq-to-file: topics into files, every message on disk before it is finished."""
