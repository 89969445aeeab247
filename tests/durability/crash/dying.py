"""Death at a recorded call, where the recorder is preloaded."""

import ctypes


def die_at(folder: str, number: int) -> None:
    """The process is killed, as by kill -9, right before the call of that number that changes files of the folder."""
    calls = ctypes.CDLL(None)
    calls.nsq_calls_watch(folder.encode(), None)
    calls.nsq_calls_die_at(number)
