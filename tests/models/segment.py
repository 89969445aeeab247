"""Which records a data file holds, as plainly as the rules of _ext/storage/diskqueue/segment.pyx can be said."""

HEX = frozenset(b"0123456789abcdef")
SIZE_MIN = 30
TIMESTAMPS = range(10**18 + 1, 7258118400 * 10**9)


def read_records(data):
    """(start, end) of each, also behind damage."""
    found, position, previous = [], 0, -1
    while True:
        span = (position, end_of(data, position)) if accepted(data, position) else None
        if span is None and position < len(data):
            span = search(data, position if previous < 0 else previous + SIZE_MIN)
        if span is None:
            return found
        found.append(span)
        previous, position = span


def is_clear(data):
    """Whether nothing but the heads of its records looks like one: there is one way to read it."""
    heads = {start for start, _ in read_records(data)}
    return all(
        at in heads
        for at in range(len(data) - SIZE_MIN + 1)
        if HEX.issuperset(data[at + 14 : at + 30]) and end_of(data, at) >= at + SIZE_MIN
    )


def search(data, start):
    for at in range(start, len(data) - SIZE_MIN + 1):
        if plausible(data, at):
            return at, end_of(data, at)
    return None


def end_of(data, at):
    return at + 4 + int.from_bytes(data[at : at + 4], "big")


def fits(data, at):
    """A size that a record may have, and so many bytes."""
    return at + SIZE_MIN <= len(data) and at + SIZE_MIN <= end_of(data, at) <= len(data)


def looks(data, at):
    return fits(data, at) and HEX.issuperset(data[at + 14 : at + 30])


def accepted(data, at):
    """Right behind a sound one."""
    if looks(data, at):
        return True
    return fits(data, at) and (end_of(data, at) == len(data) or looks(data, end_of(data, at)))


def plausible(data, at):
    """Amid damage."""
    if not looks(data, at):
        return False
    if end_of(data, at) == len(data) or looks(data, end_of(data, at)):
        return True
    timestamp_ns = int.from_bytes(data[at + 4 : at + 12], "big")
    return timestamp_ns in TIMESTAMPS and int.from_bytes(data[at + 12 : at + 14], "big") < 1000
