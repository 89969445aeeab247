"""The files of the commit log as docs/DURABILITY.md describes them, written and read without any speed."""

import struct

HEAD = struct.Struct("<IIIIQ16sQQQQQQQ")
BATCH = struct.Struct("<IIQQQIIIIqQ")
RECORD = struct.Struct("<IIBBHI")
HEAD_MAGIC, BATCH_MAGIC = b"nsqh", b"nsqb"


def make_table():
    table = []
    for state in range(256):
        for _ in range(8):
            state = state >> 1 ^ 0x82F63B78 if state & 1 else state >> 1  # noqa: PLW2901
        table.append(state)
    return table


TABLE = make_table()


def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def number(value):
    return struct.pack("<Q", value)


def pad(data, align):
    return data + bytes(-len(data) % align)


def encode_head(
    epoch,
    quarter_size,
    generation,
    needed_from=1,
    failed=(0, 0, 0, 0),
    version=1,
    interval_from=0,
):
    fields = (HEAD_MAGIC, version, 0, generation, epoch, quarter_size, needed_from, *failed)
    rest = struct.pack("<4sIIQ16sQQQQQQQ", *fields, interval_from).ljust(4092, b"\0")
    return struct.pack("<I", crc32c(rest)) + rest


def encode_record(kind, flags, extra, subject, payload, seed):
    rest = struct.pack("<IBBHI", 16 + len(payload), kind, flags, extra, subject) + payload
    return pad(struct.pack("<I", crc32c(rest, seed)) + rest, 8)


def encode_batch(
    epoch,
    sequence,
    place,
    records,
    *,
    needed_from=1,
    previous=0,
    wall_ns=0,
    align=4096,
    unsynced=0,
):
    """Records: (kind, flags, extra, subject, payload)."""
    epoch_seed = crc32c(epoch)
    seed, body, sums = crc32c(number(sequence), epoch_seed), b"", 0
    for record in records:
        encoded = encode_record(*record, crc32c(number(place + 64 + len(body)), seed))
        sums = crc32c(encoded[:4], sums)
        body += encoded
    fields = (BATCH_MAGIC, sequence, needed_from, place, 64 + len(body), len(records), sums)
    rest = struct.pack("<4sQQQIIIIqQ", *fields, previous, wall_ns, unsynced)
    return pad(struct.pack("<I", crc32c(rest, epoch_seed)) + rest + body, align)


def read_epoch(folder):
    """(epoch, quarter size) of a ring."""
    fields = HEAD.unpack_from((folder / "head").read_bytes())
    return fields[5], fields[6]
