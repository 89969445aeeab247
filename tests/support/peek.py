"""Pictures of what waits, whole: page by page, as the HTTP API offers them; and what picks messages from it."""

from nsqfast._ext.broker.picker import Picker
from nsqfast._ext.broker.snapshot import LIMIT_MAX, PIECE_SIZE_MAX, Snapshot


def complete(queue, state="ready", **wanted):
    """One snapshot, finished."""
    snapshot = Snapshot(queue, state, **wanted)
    if snapshot.needs_thread:
        snapshot.complete()
    return snapshot


def rows(snapshot):
    return [snapshot.row(index) for index in range(len(snapshot))]


def look_at_all(queue, state="ready", limit=LIMIT_MAX, piece_max=PIECE_SIZE_MAX):
    """Every row of that state, in pages of `limit`."""
    found, offset = [], 0
    while offset is not None:
        snapshot = complete(queue, state, limit=limit, offset=offset, piece_max=piece_max)
        found += rows(snapshot)
        assert snapshot.remark is None
        assert snapshot.scanned == len(snapshot)
        assert snapshot.depth >= len(found)
        offset = snapshot.next_offset
    assert snapshot.is_complete
    return found


def pick(channel, state, action, target=None, **wanted):
    """A picker, at its end."""
    picker = Picker(channel, state, action, target, **wanted)
    while not picker.is_over:
        if picker.needs_thread:
            picker.search()
        picker.go_on()
    return picker


def bodies(found):
    return [row["piece"] for row in found]
