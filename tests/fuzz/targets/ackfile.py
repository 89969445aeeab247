"""The side file of acknowledgements: a damaged one is refused, or what it says makes sense and can be gone on with."""

from nsqfast._ext.storage.diskqueue.ackfile import AckFile

from fuzz.common import empty_folder, guarded
from support.ack_files import list_finished, put_written

HEADER_SIZE, CAPACITY = 512, 16384
WORDS = [b"nsqacks2", b"\x00\x40\x00\x00\x00\x00\x00\x00", b"\xff" * 8, b"\xff" * 7 + b"\x7f"]


def path_of(folder):
    return folder / "q.diskqueue.acks.dat"


def whole(cursor=3, written=10):
    """One as we leave it, cut behind the first bits."""
    path = path_of(empty_folder("ackfile"))
    acks = AckFile(str(path))
    put_written(acks, written, 2, 300)
    acks.set_cursor(cursor, 1, 90)
    acks.mark(cursor + 1)
    acks.close()
    return path.read_bytes()[: HEADER_SIZE + 64]


def seeds():
    return [whole(), whole(1, 16000), b"", whole()[:600]]


@guarded
def check(data):
    """The front of the file is the input, zeros follow up to its usual size."""
    path = path_of(empty_folder("ackfile"))
    path.write_bytes(data.ljust(HEADER_SIZE + CAPACITY // 8, b"\0"))
    acks = AckFile.load(str(path))
    if acks is None:
        return
    (cursor, *cursor_place), (written, *written_place) = acks.state()
    assert 1 <= cursor <= written <= cursor + acks.capacity
    assert min(*cursor_place, *written_place) >= 0
    finished = list_finished(acks)
    assert len(list_finished(acks)) == len(finished)
    # Of a queue that was being emptied the cursor is ahead, and it goes on from there.
    put_written(acks, written + 100, *max(cursor_place, written_place))
    assert list_finished(acks) == finished
    acks.mark(written + 50)
    again = AckFile.load(str(path))
    assert again.trusted == acks.trusted
    assert list_finished(again) == [*finished, written + 50]
    assert len(list_finished(again)) == len(finished) + 1
