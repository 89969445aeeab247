"""Which records a data file holds, as plainly as the rules of _ext/storage/diskqueue/segment.pyx can be said."""

import re

ID = re.compile(rb"[0-9a-vG-V]{5}[0-9a-f]{11}")
FAILURES_MAX = 127
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
        if is_id(data[at + 14 : at + 30]) and end_of(data, at) >= at + SIZE_MIN
    )


def search(data, start):
    for at in range(start, len(data) - SIZE_MIN + 1):
        if plausible(data, at):
            return at, end_of(data, at)
    return None


def end_of(data, at):
    return at + 4 + int.from_bytes(data[at : at + 4], "big")


def is_id(text):
    """Sixteen digits; in which of three alphabets each of the first five stands says how often the message failed."""
    alphabets = [
        1 if each in b"ghijklmnopqrstuv" else 2 if each in b"GHIJKLMNOPQRSTUV" else 0
        for each in text[:5]
    ]
    failures = sum(alphabet * 3**place for place, alphabet in enumerate(alphabets))
    return bool(ID.fullmatch(text)) and failures <= FAILURES_MAX


def fits(data, at):
    """A size that a record may have, and so many bytes."""
    return at + SIZE_MIN <= len(data) and at + SIZE_MIN <= end_of(data, at) <= len(data)


def looks(data, at):
    return fits(data, at) and is_id(data[at + 14 : at + 30])


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
