"""Completion for bash and zsh, made from the options of every program."""
