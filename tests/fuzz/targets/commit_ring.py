"""A ring of the commit log: foreign bytes in its head and quarters are refused in one line, or read within bounds.

What is believed is handed out in order, each record within its batch, as a view said before, and the ring goes on
behind it: what it commits then is read back, and what was read before is the same again.
"""

from nsqfast._ext.commitlog.view import RingView
from nsqfast._ext.dev.commit_rings import FaultyFiles, OpenRing

from fuzz.common import empty_folder, guarded
from models import commit_ring
from nsqfast.errors import OptionsError

EPOCH = bytes(range(16))
QUARTER = 16384
WORDS = [
    commit_ring.HEAD_MAGIC,
    commit_ring.BATCH_MAGIC,
    b"\x00\x40\x00\x00",
    b"\xff" * 4,
    b"\xff" * 8,
]
RECORDS = [(1, 0, 0, 7, b"one"), (2, 3, 4, 5, b"two" * 30)]
HEAD = commit_ring.encode_head(EPOCH, QUARTER, 1)
# Of an input the first byte says where the rest goes: bit 7 into the head; else bits 0 and 1 are the quarter, bits 2
# and 3 the page. With bit 5 the sums of what looks like a head, batch or record there are made right.
TO_HEAD, MAKE_RIGHT = 128, 32


def make_ring():
    folder = empty_folder("commit-ring") / "log"
    folder.mkdir()
    (folder / "head").write_bytes(commit_ring.encode_head(EPOCH, QUARTER, 0) + HEAD)
    one = commit_ring.encode_batch(EPOCH, 1, 0, RECORDS)
    two = commit_ring.encode_batch(
        EPOCH, 2, 4096, RECORDS, previous=int.from_bytes(one[:4], "little")
    )
    (folder / "0.ring").write_bytes((one + two).ljust(QUARTER, b"\0"))
    for quarter in (1, 2, 3):
        (folder / f"{quarter}.ring").write_bytes(bytes(QUARTER))
    return folder


def make_right(data, place):
    """With the sum of the header, and of each record as far as lengths lead to one."""
    data = bytearray(data.ljust(64, b"\0"))
    epoch_seed = commit_ring.crc32c(EPOCH)
    data[4:8] = commit_ring.BATCH_MAGIC
    data[24:32] = commit_ring.number(place)
    seed, at = commit_ring.crc32c(bytes(data[8:16]), epoch_seed), 64
    while at + 16 <= len(data):
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        if not 16 <= length <= len(data) - at:
            break
        crc = commit_ring.crc32c(
            data[at + 4 : at + length], commit_ring.crc32c(commit_ring.number(place + at), seed)
        )
        data[at : at + 4] = crc.to_bytes(4, "little")
        at += (length + 7) // 8 * 8
    data[:4] = commit_ring.crc32c(data[4:64], epoch_seed).to_bytes(4, "little")
    return bytes(data)


def seeds():
    batch = commit_ring.encode_batch(EPOCH, 3, 8192, RECORDS, needed_from=2, align=512)
    moved = commit_ring.encode_batch(EPOCH, 3, 1 << 48, RECORDS, align=8)
    return [
        bytes([TO_HEAD]) + HEAD,
        bytes([TO_HEAD | MAKE_RIGHT]) + HEAD[:88],
        bytes([2 << 2 | MAKE_RIGHT]) + batch,
        bytes([1]) + moved,
        bytes([0]) + batch,
        bytes([1 << 2]) + bytes(64),
    ]


def write(folder, data):
    kind, rest = data[0], data[1:][:QUARTER]
    if kind & TO_HEAD:
        head = bytearray(rest.ljust(8192, b"\0")[:8192])
        if kind & MAKE_RIGHT:
            head[4:8] = commit_ring.HEAD_MAGIC
            head[:4] = commit_ring.crc32c(head[4:4096]).to_bytes(4, "little")
        (folder / "head").write_bytes(head)
        return
    quarter, start = kind & 3, 4096 * (kind >> 2 & 3)
    if kind & MAKE_RIGHT:
        rest = make_right(rest, quarter << 48 | start)
    path = folder / f"{quarter}.ring"
    before = path.read_bytes()
    path.write_bytes((before[:start] + rest + before[start + len(rest) :])[:QUARTER])


def read(ring):
    found = ring.read()
    numbers = [record[0] for record in found]
    assert numbers == sorted(numbers)
    assert all(ring.first <= number <= ring.last for number in numbers)
    for path, start, end, (first, last) in ring.damaged:
        assert path.endswith(".ring")
        assert 0 <= start <= end <= QUARTER
        assert ring.first <= first <= last <= ring.last
    return found


def open_ring(folder):
    files = FaultyFiles()
    files.never_sync()
    return OpenRing(str(folder), 0, files, is_stepped=True)


def look(folder):
    """What a view finds, which changes nothing: it is what a start will find."""
    before = [path.read_bytes() for path in sorted(folder.iterdir())]
    view = RingView(str(folder))
    try:
        view.open()
    except OptionsError as error:
        return str(error)
    found = []
    while piece := view.read(3, 50, QUARTER):
        number, _, records = piece
        found += [(number, *record[:4], record[5]) for record in records]
    state = view.first, view.last, view.torn is not None
    view.close()
    assert [path.read_bytes() for path in sorted(folder.iterdir())] == before
    return state, view.damaged, found


@guarded
def check(data):
    folder = make_ring()
    if data:
        write(folder, data)
    looked = look(folder)
    try:
        ring = open_ring(folder)
    except OptionsError as error:
        assert data[0] & TO_HEAD
        assert str(error) == looked
        assert "\n" not in str(error)
        return
    found = read(ring)
    state, damaged, records = looked
    assert state == (ring.first, ring.last, ring.is_torn)
    if ring.is_torn:
        # Foreign bytes may say that a batch was torn where others stand, which the start erases then.
        assert [record for record in records if record in found] == found
    else:
        assert (damaged, records) == (ring.damaged, found)
    ring.append(b"next", 9)
    added = ring.filling
    if ring.wait(added):
        found.append((added, 9, 0, 0, 0, b"next"))
    ring.close()
    again = open_ring(folder)
    assert read(again) == [record for record in found if record[0] >= again.first]
    again.close()
