"""A ring as somebody looks at it: nothing is written, and what cannot be read is said."""

import os

import pytest
from nsqfast._ext.commitlog.view import RingView
from nsqfast._ext.dev.commit_files import RecordingFiles
from nsqfast._ext.dev.commit_rings import FaultyFiles

ALL = (1 << 30, 1 << 30, 1 << 30)
LARGE = b"l" * 65000  # fills a quarter


def fill(ring, payloads):
    for payload in payloads:
        ring.append(payload)
        assert ring.wait(ring.filling)


def read_all(view, *limits):
    """Payloads by batch."""
    found = {}
    while piece := view.read(*(limits or ALL)):
        number, _, records = piece
        found.setdefault(number, []).extend(record[-1] for record in records)
    return found


@pytest.fixture
def look(tmp_path):
    views = []

    def look_(files=None):
        views.append(RingView(str(tmp_path / "log"), files))
        views[-1].open()
        return views[-1]

    yield look_
    for view in views:
        view.close()


@pytest.mark.parametrize("is_interval", [False, True])
def test_nothing_is_written(open_ring, look, tmp_path, is_interval):
    """Not even what a start would repair: a torn batch, a head that a kill left unsynced, a ring that was not made."""
    ring = open_ring(is_interval=is_interval)
    fill(ring, [b"one", b"t" * 9000])
    ring.close()
    with (tmp_path / "log" / "0.ring").open("r+b") as file:
        file.seek(4096 + 5000)
        file.write(bytes(4096))
    (tmp_path / "log.new").mkdir()
    files = RecordingFiles()
    view = look(files)
    assert read_all(view) == {1: [b"one"]}
    names = {name for name, _, _ in files.calls}
    assert names == {"open"}
    access = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
    assert [flags & access for _, (_, flags, _), _ in files.calls] == [os.O_RDONLY] * len(
        files.calls
    )


def test_what_is_in_the_kernels_cache_is_read_there(open_ring, look):
    """A direct read would have the kernel write it first."""
    ring = open_ring(is_interval=True)
    fill(ring, [b"one"])
    files = RecordingFiles()
    look(files)
    quarters = [flags for _, (path, flags, _), _ in files.calls if path.endswith(".ring")]
    assert [flags & os.O_DIRECT for flags in quarters] == [0] * 4


def test_a_file_system_that_refuses_direct_reads(open_ring, look):
    fill(open_ring(), [b"one"])
    for how in (1, 2):
        files = FaultyFiles()
        files.refuse_direct(how)
        assert read_all(look(files)) == {1: [b"one"]}


def test_a_page_that_cannot_be_read(open_ring, look, tmp_path):
    fill(open_ring(), [b"one", b"two", b"three"])
    files = FaultyFiles()
    files.make_unreadable(0, 5000)
    view = look(files)
    path = str(tmp_path / "log" / "0.ring")
    assert view.damaged == [(path, 4096, 8192, (0, 0))]
    assert read_all(view) == {1: [b"one"], 3: [b"three"]}
    assert view.damaged[1][3] == (2, 2)


def test_what_is_not_needed_any_more(open_ring, look):
    """As far as nothing was written over it: the last batch begins the third quarter."""
    ring = open_ring()
    payloads = [bytes([n]) + LARGE for n in range(6)]
    for payload in payloads:
        fill(ring, [payload])
        ring.checkpoint(ring.filling)
    fill(ring, [b"small"])
    view = look()
    assert (view.first, view.last) == (7, 7)
    view.seek(1)
    assert read_all(view) == {n: [payloads[n - 1]] for n in range(4, 7)} | {7: [b"small"]}
    view = look()
    view.seek(5)
    assert list(read_all(view)) == [5, 6, 7]
    view = look()
    view.seek(9)
    assert read_all(view) == {}


def test_old_batches_that_are_damaged_are_left_out(open_ring, look, tmp_path):
    ring = open_ring()
    fill(ring, [b"one", b"two", b"three"])
    ring.checkpoint(4)
    fill(ring, [b"four"])
    fill(ring, [b"five"])
    with (tmp_path / "log" / "0.ring").open("r+b") as file:
        file.seek(4096 + 64 + 16)
        file.write(b"\xff")
    view = look()
    view.seek(1)
    assert list(read_all(view)) == [1, 3, 4, 5]
    assert view.damaged == []


@pytest.mark.parametrize("is_interval", [False, True])
def test_times_of_batches_never_go_back(open_ring, look, is_interval):
    """Whatever the clock does, and over a start: nsqd's ids follow from them."""
    ring = open_ring(is_interval=is_interval)
    for wall_ns in (1000, 3000, 2000, -1):
        ring.append(b"x")
        (ring.write if is_interval else ring.commit)(wall_ns)
        assert ring.wait(ring.filling - 1)
    ring.close()
    ring = open_ring(is_interval=is_interval)
    for wall_ns in (2999, 3001):
        ring.append(b"x")
        (ring.write if is_interval else ring.commit)(wall_ns)
        assert ring.wait(ring.filling - 1)
    view, times = look(), []
    while piece := view.read(*ALL):
        times.append(piece[1][4])
    assert times == [1000, 3000, 3000, 3000, 3000, 3001]


def test_pieces(open_ring, look):
    """A batch comes in as many as its records or bytes make; no piece has records of two."""
    ring = open_ring()
    for n in range(10):
        ring.append(bytes([n]) * 100)
    assert ring.wait(1)
    fill(ring, [b"next"])
    wanted = {1: [bytes([n]) * 100 for n in range(10)], 2: [b"next"]}
    assert read_all(look(), 3, 1 << 20, 1 << 20) == wanted
    view, sizes = look(), []
    while piece := view.read(100, 250, 1 << 20):
        sizes.append(len(piece[2]))
    assert sizes == [3, 3, 3, 1, 1]
    cut = {number: [each[:2] for each in records] for number, records in wanted.items()}
    assert read_all(look(), 100, 1 << 20, 2) == cut


def test_counts(open_ring, look):
    ring = open_ring()
    for kind in (1, 1, 255):
        ring.append(b"four", kind)
    assert ring.wait(1)
    view, counted = look(), []
    while count := view.count(2):
        counted.append(count)
    assert (counted, view.counts(), view.payload_bytes) == ([2, 1], {1: 2, 255: 1}, 12)


@pytest.mark.parametrize("align", [512, 4096])
def test_fill_is_that_of_the_ring(open_ring, look, align):
    ring = open_ring(align=align, is_interval=align == 512)
    for n in range(9):
        fill(ring, [b"p" * 30000])
        if n > 1:
            ring.checkpoint(ring.filling - 3)
        fill(ring, [b"x"])
        assert look().fill == pytest.approx(ring.fill())
