"""Shared by the command-line tools: one module each for options, the run of a program, the client's settings, ..."""
