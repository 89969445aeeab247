"""Names of files: tokens, codes, endings."""

import os
import socket
import time

import pytest

from nsqfast.errors import OptionsError
from nsqfast.tools.nsq_to_file.naming import Naming, format_time, join_path, put_revision
from nsqfast.tools.nsq_to_file.options import parse

NOW_S = 1_780_000_000.0
HOST = socket.gethostname()
SHORT = HOST.partition(".")[0]


def name(*flags, topic="t"):
    options = parse(["--topic=t", "--nsqd-tcp-address=127.0.0.1:1", *flags])
    return Naming(options, topic).at(NOW_S)


def hour():
    return time.strftime("%Y-%m-%d_%H", time.localtime(NOW_S))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], "t.{short}.{hour}.log"),
        (["--gzip"], "t.{short}<REV>.{hour}.log.gz"),
        (["--compression=zstd"], "t.{short}<REV>.{hour}.log.zst"),
        (["--rotate-size=1"], "t.{short}<REV>.{hour}.log"),
        (["--rotate-interval=1s"], "t.{short}<REV>.{hour}.log"),
        (["--work-dir=/elsewhere"], "t.{short}<REV>.{hour}.log"),
        (["--work-dir=/var/../tmp/"], "t.{short}.{hour}.log"),
        (["--format=jsonl"], "t.{short}.{hour}.jsonl"),
        (["--format=jsonl", "--gzip"], "t.{short}<REV>.{hour}.jsonl.gz"),
        (["--format=parquet"], "t.{short}<REV>.{hour}.parquet"),
        (["--format=parquet", "--compression=zstd"], "t.{short}<REV>.{hour}.parquet"),
        (["--format=arrow"], "t.{short}<REV>.{hour}.arrow"),
        (["--filename-format=<TOPIC><REV>.x", "--format=jsonl"], "t.x.jsonl"),
        (["--filename-format=a<REV>.log.gz", "--gzip"], "a<REV>.log.gz"),
        (["--filename-format=a<REV>.gz", "--gzip", "--format=jsonl"], "a<REV>.jsonl.gz"),
        (["--filename-format=<PID>/<TOPIC>/<DATETIME>", "--datetime-format=%y"], "{pid}/t/26"),
        (["--host-identifier=h", "--filename-format=<HOST>"], "h"),
        (
            ["--host-identifier=<SHORT_HOST>_<HOSTNAME>", "--filename-format=<HOST>"],
            "{short}_{host}",
        ),
    ],
)
def test_names(flags, expected):
    wanted = expected.format(short=SHORT, host=HOST, hour=hour(), pid=os.getpid())
    assert name(*flags) == wanted


def test_codes():
    moment = time.localtime(NOW_S)
    for code in "BbmAadHIMSYypZz":
        assert format_time(f"<%{code}>", NOW_S) == f"<{time.strftime('%' + code, moment)}>"
    assert format_time("%% 100% %j %e %Q %", NOW_S) == "% 100% %j %e %Q %"


def test_words_that_look_like_those_of_go_stay():
    """Go's tool reads digits and names of months in the format as parts of a date."""
    assert format_time("v2_Jan-MST-2006", NOW_S) == "v2_Jan-MST-2006"


def test_revisions():
    assert put_revision("a<REV>.log", 7) == "a-000007.log"
    assert put_revision("a<REV>.log", 1234567) == "a-1234567.log"
    assert put_revision("a.log", 7) == "a.log"


@pytest.mark.parametrize(
    "given", ["x/a-000012.2026-01-01_00.parquet", "x/a-1000000.parquet.parquet"]
)
def test_what_another_process_made_is_known(given):
    flags = ["--format=parquet", "--filename-format=x/a<REV>.<DATETIME>.parquet"]
    naming = Naming(parse(["--topic=t", "--nsqd-tcp-address=127.0.0.1:1", *flags]), "t")
    assert naming.has(given)
    template, number = naming.split(given)
    assert put_revision(template, number) == given
    for other in ("x/b-000012.2026.parquet", "x/a-12.2026.parquet", "a-000012.2026.parquet"):
        assert not naming.has(other)


def test_places():
    assert str(join_path("/out", "a/../b")) == "/out/b"
    assert str(join_path("./w/", "/x")) == "w/x"


@pytest.mark.parametrize("topic", [".", ".."])
def test_topics_that_are_folders(topic):
    with pytest.raises(OptionsError, match="would be a folder"):
        name("--filename-format=<TOPIC>/x", topic=topic)
