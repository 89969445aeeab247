"""nsqfast-redrive: dead letters go back to the channel that they died in."""
