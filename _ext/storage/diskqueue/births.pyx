"""Where the commit log says that a queue was made; a start removes those whose names it does not have.

A kill, or a power cut, can come when a new queue has files and the batch with its name is not committed. Batches are
committed in order, so nothing of that queue was answered: neither a publish to it, nor what its topic handed over,
which the log still has in the topic. With its files that would be there twice, and an unanswered publish in it alone.

A queue that the log does not name may have been there before the log as well. So the metadata of a new one says where
it was born, from its first record on, in the line before `log`:

    born 5090db4b8a993d96b229c9319037ec54,812       in batch 812 of the log with that epoch

Its files are removed only if this is certain:

- The epoch is the log's, and the batch is behind the last clean stop and not before the first that is needed. All
  batches from there on were read and none was damaged, so one of them would have the name if it had been committed. A
  checkpoint would have it, too.
- Our metadata is the last that was written. Go's nsqd writes three lines, other releases of ours none of these, and a
  start or a clean stop that takes the queue over leaves the line out. Files without that line are kept.
- Its topic is in the log, or goes as well. If the topic is taken as its files say, these may say that the channel has
  what was handed over.

The metadata goes last: a start that is cut short leaves the rest to the next one.

A power cut may take the metadata of a new queue and leave some of its data. Then nsqd.dat says whose it is: it gets a
name when the log has it, and another broker writes it before a first message. So what neither has, without metadata,
was never answered, if the log was not closed since.
"""

from libc.stdint cimport uint64_t

import logging
import os

from nsqfast._ext.storage.diskqueue.recovery import LOG_LINE

cdef enum:
    SHOWN_MAX = 5
    META_SIZE_MAX = 4096

log = logging.getLogger("nsqd")


cdef str birth_line(bytes epoch, uint64_t sequence):
    return f"born {epoch.hex()},{sequence}\n"


cdef int remove_unnamed(str folder, object named, bytes epoch, uint64_t first) except -1:
    """Remove the files of queues that were born in batch `first` or later, and are not in `named`."""
    cdef dict files = {}
    for file in os.listdir(folder):
        name, separator, _ = file.partition(".diskqueue.")
        if separator and name not in named:
            files.setdefault(name, []).append(file)
    born = {name for name in files if is_born_since(os.path.join(folder, name + ".diskqueue.meta.dat"), epoch, first)}
    removed = []
    for name in sorted(born):
        topic = name.partition(":")[0]
        if topic in born or topic not in files:
            removed.append(name)
            for file in sorted(files[name], key=is_metadata):
                os.unlink(os.path.join(folder, file))
    if removed:
        shown = ", ".join(removed[:SHOWN_MAX]) + (", ..." if len(removed) > SHOWN_MAX else "")
        log.warning("removing the files of %d queue(s) that were made right before the last end, and are not in the "
                    "commit log: nothing of them was answered (%s)", len(removed), shown)
    return 0


cdef bint remove_without_metadata(str folder, object named, str name) except -1:
    """Remove the files of a queue that the log and nsqd.dat do not name, if a power cut took its metadata."""
    cdef str topic = name.partition(":")[0]
    if name in named:
        return False
    try:
        with open(os.path.join(folder, name + ".diskqueue.meta.dat"), "rb") as file:
            if file.read(META_SIZE_MAX).strip(b"\0"):
                return False
    except FileNotFoundError:
        pass
    files = [file for file in os.listdir(folder) if ".diskqueue." in file]
    if topic != name and topic not in named and any(file.startswith(topic + ".") for file in files):
        return False
    for file in files:
        if file.startswith(name + ".diskqueue."):
            os.unlink(os.path.join(folder, file))
    log.warning("removing the files of %s, whose metadata a power cut took: the commit log does not have it, so "
                "nothing of it was answered", name)
    return True


def is_metadata(str file):
    return file.endswith(".meta.dat")


cdef bint is_born_since(str meta_path, bytes epoch, uint64_t first) except -1:
    cdef str text
    try:
        with open(meta_path, "rb") as file:
            text = file.read(META_SIZE_MAX).decode("ascii", "replace")
    except OSError:
        return False
    if not text.endswith("\n" + LOG_LINE):
        return False
    line = text[:len(text) - len(LOG_LINE)].rstrip("\n").rpartition("\n")[2]
    birth, _, sequence = line.partition(",")
    return birth == f"born {epoch.hex()}" and sequence.isdecimal() and int(sequence) >= first
