"""Archives of lines, packed or not: any cut into blocks gives the same; plain ones what Python's own split gives."""

import contextlib
import gzip
import json

from backports import zstd

from fuzz.common import empty_folder
from nsqfast.archives import Archive, NameFacts, open_archive

FORMATS = ("lines", "jsonl")
PACKERS = ("", "gzip", "zstd")
BLOCK_SIZES = (1, 3, 50, 1 << 16)
WORDS = [
    b"\n",
    b'{"body":"',
    b'"}\n',
    b'{"body_base64":"AP8="}\n',
    b'"timestamp_ns":',
    b"\x1f\x8b\x08",
    b"\x28\xb5\x2f\xfd",
]


def seeds():
    text = b"one\n\ntwo\0\nlast"
    rows = b'{"body":"a","topic":"t","id":"x","timestamp_ns":5}\n{"body_base64":"AP8="}\n{torn\n'
    return [
        b"\x00" + text,
        b"\x01" + rows,
        b"\x02" + gzip.compress(text, mtime=0) + gzip.compress(b"more\n", mtime=0)[:-5],
        b"\x03" + gzip.compress(rows, mtime=0),
        b"\x04" + zstd.compress(text) + zstd.compress(b"more\n"),
    ]


def read(archive, block_size):
    """Bodies, positions, and what was damaged."""
    damages, found = [], []
    with open_archive(archive, damages.append, block_size=block_size) as reader:
        for records in reader.records:
            assert records.end >= int(records.positions.max(initial=0))
            found += [(records.bodies[i], int(records.positions[i])) for i in range(len(records))]
    assert not any("\n" in str(damage) for damage in damages)
    return found, damages


def naive_jsonl(data):
    """Bodies of the lines that Python's json reads the same."""
    found = []
    for line in data.split(b"\n")[:-1]:
        with contextlib.suppress(ValueError, RecursionError, AttributeError):
            if isinstance(body := json.loads(line).get("body"), str):
                found.append(body.encode())
    return found


def check(data):
    choice, data = (data[0] if data else 0), data[1:]
    path = empty_folder("archive") / "a"
    path.write_bytes(data)
    packer = PACKERS[choice // 2 % 3]
    archive = Archive(str(path), FORMATS[choice % 2], packer, len(data), NameFacts())
    found, damages = read(archive, BLOCK_SIZES[-1])
    for block_size in BLOCK_SIZES[:-1]:
        again, damages_again = read(archive, block_size)
        # How much of a damaged member is given goes by blocks; in what is whole nothing does.
        if not (packer and damages):
            assert again == found
            assert damages_again == damages
    if packer:
        return
    bodies = [body for body, _ in found]
    assert [position for _, position in found] == sorted(position for _, position in found)
    if archive.format == "lines":
        assert bodies == [line for line in data.split(b"\n")[:-1] if line]
        assert bool(damages) == bool(data and not data.endswith(b"\n"))
    else:
        expected = set(naive_jsonl(data))
        plain = [
            body for body, at in found if b'"body_base64"' not in data[at : data.find(b"\n", at)]
        ]
        assert expected >= set(plain)
