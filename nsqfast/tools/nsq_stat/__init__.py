"""nsqfast-nsq-stat: rates and depths of channels, like vmstat and top."""
