"""What a program is made of: options and configuration, logs, signals, what its extras lack, what it says of itself."""
