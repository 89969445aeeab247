"""What the targets share: pieces, a folder, and a log in which nothing may look like our fault."""

import atexit
import contextlib
import functools
import gc
import itertools
import logging
import random
import shutil
import tempfile
from pathlib import Path

from nsqfast._ext.dev.probes import used_bytes

from nsqfast.program.logs import TextFormatter

# In memory where that is possible: nothing here is about what a disk survives.
_PARENT = "/dev/shm" if Path("/dev/shm").is_dir() else None

LOGS = [logging.getLogger(name) for name in ("nsqd", "nsqlookupd", "nsqfast.client")]


class Witness(logging.Handler):
    """Formats all that is logged, and keeps what a peer or a file must not be able to cause."""

    def __init__(self):
        super().__init__()
        self.complaints = []
        self.formatter = TextFormatter("[nsqd] ")

    def emit(self, record):
        line = self.formatter.format(record)
        if record.exc_info or "\n" in line:
            self.complaints.append(line)


def guarded(check):
    """A traceback in the log fails the check, as does a record of more than a line."""

    @functools.wraps(check)
    def run(data):
        witness = Witness()
        with contextlib.ExitStack() as stack:
            for log in LOGS:
                stack.callback(setattr, log, "propagate", log.propagate)
                stack.callback(log.setLevel, log.level)
                stack.callback(log.removeHandler, witness)
                log.addHandler(witness)
                log.setLevel(logging.INFO)
                log.propagate = False
            check(data)
        assert not witness.complaints, witness.complaints[0]

    return run


@functools.cache
def freeze():
    """What is there for good is not looked through at each collection."""
    gc.collect()
    gc.freeze()


def settled_bytes():
    """What counts as memory of messages and buffers, when nobody holds it by mistake."""
    freeze()
    gc.collect()
    return used_bytes()


def pieces(data, pattern):
    """`data` cut as the number says: 0 not at all, 1 into bytes, else somewhere."""
    if pattern == 0:
        return [data] if data else []
    if pattern == 1:
        return [data[i : i + 1] for i in range(len(data))]
    dice = random.Random(pattern)
    most = dice.choice([2, 5, 30, 300])
    steps = (dice.randrange(1, most + 1) for _ in itertools.count())
    ends = itertools.takewhile(lambda end: end < len(data), itertools.accumulate(steps))
    cuts = [0, *ends, len(data)]
    return [data[start:end] for start, end in itertools.pairwise(cuts) if end > start]


@functools.cache
def scratch():
    """A folder of this process that goes with it."""
    path = Path(tempfile.mkdtemp(prefix="nsqfast-fuzz-", dir=_PARENT))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def empty_folder(name):
    """A folder with nothing in it, whatever the last check left there."""
    path = scratch() / name
    path.mkdir(exist_ok=True)
    for file in path.iterdir():
        if file.is_dir():
            shutil.rmtree(file)
        else:
            file.unlink()
    return path


def body(data):
    """With its size in front."""
    return len(data).to_bytes(4, "big") + data
