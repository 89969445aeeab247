"""Pictures of what waits, whole: page by page, as the HTTP API offers them."""

from nsqfast._ext.broker.snapshot import LIMIT_MAX, PIECE_SIZE_MAX, Picture


def develop(queue, state="ready", **wanted):
    """One picture, finished."""
    picture = Picture(queue, state, **wanted)
    if picture.needs_thread:
        picture.develop()
    return picture


def rows(picture):
    return [picture.row(index) for index in range(len(picture))]


def look_at_all(queue, state="ready", limit=LIMIT_MAX, piece_max=PIECE_SIZE_MAX):
    """Every row of that state, in pages of `limit`."""
    found, offset = [], 0
    while offset is not None:
        picture = develop(queue, state, limit=limit, offset=offset, piece_max=piece_max)
        found += rows(picture)
        assert picture.remark is None
        assert picture.scanned == len(picture)
        assert picture.depth >= len(found)
        offset = picture.next_offset
    assert picture.is_complete
    return found


def bodies(found):
    return [row["piece"] for row in found]
