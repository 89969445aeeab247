"""Death at a recorded call, where the recorder is preloaded."""

import ctypes


def die_after(folder: str, call_count: int) -> None:
    """The process is killed, as by kill -9, right after this many more calls that change files of the folder."""
    calls = ctypes.CDLL(None)
    calls.nsq_calls_watch(folder.encode(), None)
    calls.nsq_calls_die_after(call_count)
