"""Texts on standard output, whose reader may be gone: `nsqfast-nsqd --help | head -1`."""

import os
import sys


def print_text(text: str) -> None:
    """Print a text and a newline at once, as far as somebody reads it; OSError if it cannot be written otherwise."""
    try:
        print(text, flush=True)
    except OSError as error:
        # What is left in the buffer is written at the exit, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise
