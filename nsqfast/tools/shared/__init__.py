"""What the command-line tools share: one module each for options, the run of a program, the client's settings, ..."""
