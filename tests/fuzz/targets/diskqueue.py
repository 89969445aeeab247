"""A queue's folder with any bytes in its files: it opens, gives every record that can be found, and keeps it.

The input is cut at SEPARATOR: one byte of what to do, metadata ('-' for none), the ack file ('' for none), data files.
An ack file that begins with '=' takes the identity of the metadata file, so that what it says is believed.
"""

import contextlib
import re
from collections import Counter

from nsqfast._ext.dev.probes import live_deliveries
from nsqfast._ext.dev.structures import encode_record
from nsqfast._ext.storage.diskqueue.ackfile import AckFile
from nsqfast._ext.storage.diskqueue.queue import DiskQueue
from nsqfast._ext.storage.diskqueue.recovery import parse_meta
from nsqfast._ext.storage.diskqueue.segment import Segment
from nsqfast._ext.storage.diskqueue.syncer import Syncer

from fuzz.common import body, empty_folder, guarded
from models.segment import is_clear, read_records
from support.ack_files import put_written

SEPARATOR = b"\xfe\xfd\xfc"
ACK_SIZE = 512 + 16384 // 8
META_PLACE = 8 + 8 + 4 * 24  # of `meta` in the ack file's header
FILE_COUNT_MAX = 5
WORDS = [SEPARATOR, b"0,0\n", b"\x00\x00\x00\x1b", b"0123456789abcdef", b"#9\n", b"=", b"nsqacks2"]


def record(text, number=1, failures=0):
    return body(encode_record(text, 1_700_000_000_000_000_000, 1 | failures << 16, number))


def seeds():
    three = [record(b"a" * n, n, n) for n in (1, 20, 3)]
    whole = b"".join(three)
    end = len(whole)
    join = SEPARATOR.join
    return [
        join([b"\x00", b"-", b"", whole]),
        join([b"\x01", b"3\n0,0\n0,%d\n" % end, b"", whole]),
        join([b"\x02", b"6\n0,0\n1,%d\n" % end, b"", whole, whole + b"torn"]),
        join([b"\x03", b"2\n0,31\n2,0\n", b"", whole[:40] + b"\xff" * 8 + whole[48:], whole]),
        join([b"\x07", b"-", b"", whole, b"#9\n" + whole]),
        join([b"\x05", b"x\n", b"", bytes(40) + whole + bytes(40)]),
        join([b"\x06", b"2\n0,31\n0,%d\n" % end, believed((2, 0, 31), (4, 0, end), [3]), whole]),
        join([b"\x02", b"2\n0,0\n0,31\n", believed((1, 0, 0), (2, 0, 31), []), whole]),
        # A damaged size makes a zero of the next record a body, for which there is no seal.
        join([b"\x00", b"-", b"", b"\x00\x00\x00\x1b" + record(b"")[4:] + record(b"", 2)]),
    ]


def believed(cursor, written, marked):
    """An ack file as we write it, to be believed; both places are (index, file, position)."""
    path = empty_folder("acks") / "q.acks.dat"
    made = AckFile(str(path))
    put_written(made, *written)
    made.set_cursor(*cursor)
    for index in marked:
        made.mark(index)
    made.close()
    return b"=" + path.read_bytes()[: 512 + 16]


def lay(folder, meta, ack, datas):
    """Writes the files; returns {number: data} of the data files."""
    meta_path = folder / "q.diskqueue.meta.dat"
    if meta != b"-":
        meta_path.write_bytes(meta)
    if ack:
        lay_acks(folder / "q.diskqueue.acks.dat", meta_path, ack)
    files, number = {}, 0
    for section in datas[:FILE_COUNT_MAX]:
        data = section
        if named := re.match(rb"#(\d{1,18})\n", section):
            number, data = int(named[1]), section[named.end() :]
        files[number] = data
        (folder / f"q.diskqueue.{number:06d}.dat").write_bytes(data)
        number += 1
    return files


def lay_acks(path, meta_path, ack):
    data = bytearray(ack.removeprefix(b"=").ljust(ACK_SIZE, b"\0"))
    if ack.startswith(b"=") and meta_path.exists():
        status = meta_path.stat()
        data[META_PLACE : META_PLACE + 16] = status.st_ino.to_bytes(8, "little") + (
            status.st_mtime_ns.to_bytes(8, "little")
        )
    path.write_bytes(data)


def check_segments(folder, files):
    """What a file holds, by a plain reading of the rules."""
    for number, data in files.items():
        path = folder / f"q.diskqueue.{number:06d}.dat"
        assert Segment(str(path)).records() == read_records(data)


def is_torn(data, start):
    """Whether a power cut may have left this record: docs/GUARANTEES.md, the seal."""
    path = empty_folder("torn") / "record.dat"
    path.write_bytes(data)
    segment = Segment(str(path))
    is_hollow = segment.is_hollow_at(start) and not segment.is_sealed_at(start)
    return is_hollow or segment.is_cut_at(start)


def expected_without_acks(files, meta, *, is_first_write):
    """All records, where the queue has to begin at the first file; None where metadata names another place.

    Those that a power cut has torn are left out of a first file without metadata, and of no other.
    """
    with contextlib.suppress(ValueError):
        numbers = parse_meta(meta.decode("ascii", "replace"))
        if numbers[1:3] != [0, 0] or min(numbers[1:]) < 0:
            return None
    return [
        data[start + 30 : end]
        for _, data in sorted(files.items())
        for start, end in read_records(data)
        if not (is_first_write and is_torn(data, start))
    ]


def drain(queue, limit):
    found = []
    while (got := queue.get()) is not None:
        found.append(got)
        assert len(found) <= limit, "more records than there are bytes for"
    assert queue.depth == 0
    return found


def open_queue(folder, syncer, choice):
    return DiskQueue(str(folder), "q", syncer, 100 if choice & 1 else 1 << 30, 2500)


@guarded
def check(data):
    first, meta, ack, *datas = (data + 3 * SEPARATOR).split(SEPARATOR)
    datas = datas[:-3] if len(datas) > 3 else []
    choice = first[0] if first else 0
    folder, syncer, before = empty_folder("diskqueue"), Syncer(), live_deliveries()
    try:
        files = lay(folder, meta, ack, datas)
        check_segments(folder, files)
        is_first_write = (meta == b"-" or not meta.strip(b"\0")) and set(files) == {0}
        text = b"" if meta == b"-" else meta
        expected = (
            None if ack else expected_without_acks(files, text, is_first_write=is_first_write)
        )
        # What damage makes of a file can be read in more than one way, and then no way is the right one.
        clear = all(map(is_clear, files.values()))
        count_max = sum(map(len, files.values())) // 30 + 2
        check_queue(folder, syncer, choice, count_max, expected if clear else None, clear)
    finally:
        syncer.close()
    assert live_deliveries() == before


def check_queue(folder, syncer, choice, count_max, expected, clear):
    """Bits of `choice`: 0 small files, 1-4 who is finished, 5 a clean stop, 6 the ack file is lost."""
    queue = open_queue(folder, syncer, choice)
    found = drain(queue, count_max)
    bodies = [text for _, _, text, _ in found]
    assert expected is None or bodies == expected, (bodies, expected)
    queue.put(b"new")
    found += drain(queue, 1)
    assert found[-1][2] == b"new"
    left = Counter(text for i, (_, _, text, _) in enumerate(found) if not choice >> (1 + i % 4) & 1)
    for i, (ordinal, *_) in enumerate(found):
        if choice >> (1 + i % 4) & 1:
            queue.finish(ordinal)
    if choice & 32:
        queue.close()
        parse_meta((folder / "q.diskqueue.meta.dat").read_text())
    if choice & 64:
        (folder / "q.diskqueue.acks.dat").unlink(missing_ok=True)
    del queue
    queue = open_queue(folder, syncer, choice)
    again = Counter(text for _, _, text, _ in drain(queue, 4 * count_max))
    # What was finished may come again, behind damage above all; what was not has to.
    if clear:
        assert left <= again <= Counter(text for _, _, text, _ in found), (left, again)
    queue.close()
