"""The files of a topic: when one begins and ends, and what becomes of those that are there already."""

import errno
import gzip
import os
import random
from functools import partial

import cramjam
import pytest
from nsqfast._ext.client.text_lines import Lines

from nsqfast.tools.nsq_to_file import archive as archive_module
from nsqfast.tools.nsq_to_file.archive import Archive, Rules
from nsqfast.tools.nsq_to_file.folders import append_file, create_file, make_folders
from nsqfast.tools.nsq_to_file.formats import MEMBER_SIZE_MAX, TextFile, is_json_record, packer
from nsqfast.tools.nsq_to_file.naming import Naming
from nsqfast.tools.nsq_to_file.options import parse
from nsqfast.tools.shared.program import ToolError

START_S = 1_780_000_000.0


class Clock:
    def __init__(self):
        self.now_s = START_S

    def __call__(self):
        return self.now_s


class Setting:
    """An archive in a folder, with a clock that stands still."""

    def __init__(self, folder, *flags, compression="none", **rules):
        self.out = folder / "out"
        work = self.out if not rules.pop("work", False) else folder / "work"
        flags += (f"--output-dir={self.out}", f"--work-dir={work}", f"--compression={compression}")
        if rules.get("rotate_size"):
            flags += (f"--rotate-size={rules['rotate_size']}",)
        if interval_s := rules.get("rotate_interval_s"):
            flags += (f"--rotate-interval={interval_s}s",)
        words = ["--topic=t", "--nsqd-tcp-address=127.0.0.1:1", "--datetime-format=%S", *flags]
        if not any("filename-format" in word for word in words):
            words.append("--filename-format=<TOPIC><REV>.<DATETIME>")
        pack = packer(compression, 3)
        open_file = partial(append_file, is_whole=rules.pop("is_whole", None))
        if pack or rules.get("rotate_interval_s"):
            open_file = create_file
        self.clock = Clock()
        self.archive = Archive(
            "t/c",
            Naming(parse(words), "t"),
            Rules(str(self.out), str(work), **rules),
            lambda path: TextFile(path, open_file(path), pack),
            self.clock,
            self.clock,
        )

    def write(self, *bodies):
        ends = [0]
        for body in bodies:
            ends.append(ends[-1] + len(body))
        offsets = b"".join(end.to_bytes(8, "little") for end in ends)
        self.archive.write(Lines(b"".join(bodies), offsets))

    def files(self, folder=None):
        folder = folder or self.out
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def setting(tmp_path):
    return partial(Setting, tmp_path)


SECOND = f"{int(START_S) % 60:02}"
NEXT = f"{int(START_S + 1) % 60:02}"


def test_a_file_is_continued(setting):
    for _ in range(2):
        one = setting()
        one.write(b"a", b"b\nc")
        assert one.files()[f"t.{SECOND}"].endswith(b"a\nb\nc\n")  # at once
        assert one.archive.is_sync_due
        one.archive.sync()
        assert not one.archive.is_sync_due
        one.archive.close()
    assert one.files() == {f"t.{SECOND}": b"a\nb\nc\n" * 2}


def test_a_torn_tail_is_closed(setting, caplog):
    one = setting()
    one.out.mkdir()
    (one.out / f"t.{SECOND}").write_bytes(b"whole\nto")
    one.write(b"torn")
    assert one.files() == {f"t.{SECOND}": b"whole\nto\ntorn\n"}


@pytest.mark.parametrize("size", [1, 70_000, 140_000])
def test_a_torn_record_is_removed(setting, size):
    """Where a record can be told from a part of one; it was never synced, and so never finished."""
    one = setting(is_whole=is_json_record)
    one.out.mkdir()
    path = one.out / f"t.{SECOND}"
    path.write_bytes(b'{"n":1}\n{"n":"' + b"x" * size)
    one.write(b'{"n":2}')
    assert path.read_bytes() == b'{"n":1}\n{"n":2}\n'


@pytest.mark.parametrize(("tail", "left"), [(b'{"n"', b""), (b'{"n":1}', b'{"n":1}\n')])
def test_a_file_of_a_single_torn_record(setting, tail, left):
    one = setting(is_whole=is_json_record)
    one.out.mkdir()
    path = one.out / f"t.{SECOND}"
    path.write_bytes(tail)
    one.write(b'{"n":2}')
    assert path.read_bytes() == left + b'{"n":2}\n'


def test_a_torn_record_of_somebody_who_still_writes(setting):
    """What looks torn may be half of a write under way."""
    first, second = setting(is_whole=is_json_record), setting(is_whole=is_json_record)
    first.write(b'{"n":1}')
    path = first.out / f"t.{SECOND}"
    with path.open("ab") as file:
        file.write(b'{"n":')
    second.write(b'{"n":2}')
    assert path.read_bytes() == b'{"n":1}\n{"n":\n{"n":2}\n'
    first.archive.close()
    second.archive.close()


def test_another_time_is_another_file(setting):
    one = setting()
    one.write(b"a")
    one.clock.now_s += 1
    one.write(b"b")
    assert one.archive.is_sync_due
    assert one.files() == {f"t.{SECOND}": b"a\n", f"t.{NEXT}": b"b\n"}
    assert one.archive.figures.files == 2


def test_size(setting):
    """One message more than the limit, counted before compression; the next start goes on with what has room."""
    one = setting(rotate_size=5)
    one.write(b"aa", b"bb", b"cc", b"dd")
    one.archive.close()
    expected = {f"t-000000.{SECOND}": b"aa\nbb\n", f"t-000001.{SECOND}": b"cc\ndd\n"}
    assert one.files() == expected
    two = setting(rotate_size=5)
    two.write(b"e")
    two.archive.close()
    three = setting(rotate_size=5)
    three.write(b"f", b"ggggg", b"h")
    assert three.files() == {
        **expected,
        f"t-000002.{SECOND}": b"e\nf\nggggg\n",
        f"t-000003.{SECOND}": b"h\n",
    }


def test_size_of_what_is_packed(setting):
    one = setting(rotate_size=1000, compression="gzip")
    one.write(*[b"x" * 99] * 25)
    one.archive.close()
    sizes = [len(gzip.decompress(data)) for data in one.files().values()]
    assert sizes == [1100, 1100, 300]


def test_interval(setting):
    name = "--filename-format=t<REV>"
    one = setting(name, rotate_interval_s=10)
    one.write(b"a")
    one.clock.now_s += 10
    one.write(b"b")
    one.clock.now_s += 0.1
    one.write(b"c")
    one.archive.close()
    again = setting(name, rotate_interval_s=10)
    again.write(b"d")
    assert again.files() == {"t-000000": b"a\nb\n", "t-000001": b"c\n", "t-000002": b"d\n"}


def test_ticks_without_messages(setting):
    one = setting(rotate_interval_s=5)
    one.archive.tick()
    one.archive.tick()
    one.clock.now_s += 60
    one.archive.tick()
    assert one.files() == {f"t-000000.{SECOND}": b"", f"t-000001.{SECOND}": b""}


def test_ticks_that_skip_empty_files(setting):
    one = setting(rotate_interval_s=5, skip_empty_files=True, work=True)
    one.archive.tick()
    assert not one.out.exists()
    one.write(b"a")
    for _ in range(3):
        one.clock.now_s += 60
        one.archive.tick()
    assert one.files() == {f"t-000000.{SECOND}": b"a\n"}
    one.write(b"b")
    one.archive.close()
    assert one.files() == {f"t-000000.{SECOND}": b"a\n", f"t-000001.{SECOND}": b"b\n"}


def test_a_signal_between_messages(setting):
    """SIGHUP closes; Go's tool dies at the next message when files are moved."""
    one = setting(work=True)
    one.write(b"a")
    one.archive.close()
    one.archive.close()
    one.write(b"b")
    one.archive.close()
    assert one.files() == {f"t-000000.{SECOND}": b"a\n", f"t-000001.{SECOND}": b"b\n"}
    assert one.files(one.out.parent / "work") == {}
    plain = setting("--filename-format=plain")
    for body in (b"a", b"b"):
        plain.write(body)
        plain.archive.close()
    assert plain.files()["plain"] == b"a\nb\n"


def test_nothing_is_overwritten(setting):
    one = setting(work=True)
    make_folders(one.out)
    for number in (0, 2):
        (one.out / f"t-{number:06}.{SECOND}").write_bytes(b"old")
    one.write(b"a")
    (one.out / f"t-000001.{SECOND}").write_bytes(b"new")  # while it is written
    one.archive.close()
    assert one.files() == {
        f"t-000000.{SECOND}": b"old",
        f"t-000001.{SECOND}": b"new",
        f"t-000002.{SECOND}": b"old",
        f"t-000003.{SECOND}": b"a\n",
    }
    assert one.files(one.out.parent / "work") == {}


def test_what_a_killed_run_left_in_the_work_folder_is_continued(setting):
    killed = setting(work=True)
    killed.write(b"a")
    one = setting(work=True)
    one.write(b"b")
    one.archive.close()
    assert one.files() == {f"t-000000.{SECOND}": b"a\nb\n"}


def test_the_same_folder_by_another_name(tmp_path, monkeypatch):
    """Go's tool compares the texts, and moves files to themselves."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "out")
    one = Setting(tmp_path)
    one.archive = Archive(
        "t/c",
        one.archive._naming,
        Rules("./out", str(tmp_path / "link")),
        one.archive._open_at,
        one.clock,
        one.clock,
    )
    one.write(b"a")
    one.archive.close()
    assert one.files() == {f"t.{SECOND}": b"a\n"}


def test_a_relative_work_folder(tmp_path, monkeypatch):
    """Go's tool leaves `./w` in the name and puts the file into out/w."""
    monkeypatch.chdir(tmp_path)
    one = Setting(tmp_path, work=True)
    one.archive = Archive(
        "t/c",
        one.archive._naming,
        Rules("out/", "./w"),
        one.archive._open_at,
        one.clock,
        one.clock,
    )
    one.write(b"a")
    assert list(one.files(tmp_path / "w")) == [f"t-000000.{SECOND}"]
    one.archive.close()
    assert one.files() == {f"t-000000.{SECOND}": b"a\n"}


OTHER_USER = 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")


@pytest.mark.parametrize("is_there", [True, False], ids=["file", "nothing"])
def test_a_link_is_not_followed(setting, tmp_path, is_there):
    one = setting()
    one.out.mkdir()
    victim = tmp_path / "victim"
    if is_there:
        victim.write_bytes(b"export PATH")
    (one.out / f"t.{SECOND}").symlink_to(victim)
    with pytest.raises(ToolError, match="symbolic link"):
        one.write(b"a")
    assert victim.exists() == is_there
    assert not is_there or victim.read_bytes() == b"export PATH"


def test_a_pipe_is_no_archive(setting):
    one = setting()
    one.out.mkdir()
    os.mkfifo(one.out / f"t.{SECOND}")
    with pytest.raises(ToolError, match="not a regular file"):
        one.write(b"a")


@as_root
@pytest.mark.parametrize("what", ["out", "out/t", f"out/t/{SECOND}", "work/t"])
def test_what_belongs_to_another_user_is_not_written_to(setting, tmp_path, what):
    """Whose folder it is may exchange our files, and whose file it is may read what we write."""
    one = setting("--filename-format=<TOPIC>/<DATETIME><REV>", work=what.startswith("work"))
    place = tmp_path / what
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch() if place.name == SECOND else place.mkdir()
    os.chown(place, OTHER_USER, -1)
    with pytest.raises(ToolError, match=rf"{place} belongs to another user \({OTHER_USER}\)"):
        one.write(b"a")


@as_root
def test_a_link_to_a_folder_of_another_user(setting, tmp_path):
    one = setting()
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", OTHER_USER, -1)
    one.out.symlink_to(tmp_path / "theirs")
    with pytest.raises(ToolError, match="belongs to another user"):
        one.write(b"a")


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize(("umask", "mode"), [(0, 0o640), (0o077, 0o600)])
def test_who_may_read_a_file(setting, compression, umask, mode):
    one = setting(compression=compression)
    before = os.umask(umask)
    try:
        one.write(b"a")
        one.archive.close()
    finally:
        os.umask(before)
    (path,) = one.out.iterdir()
    assert path.stat().st_mode & 0o777 == mode


def test_folders_in_the_name(setting):
    one = setting("--filename-format=<TOPIC>/<DATETIME>/x<REV>", work=True)
    one.write(b"a")
    one.archive.close()
    assert one.files() == {f"t/{SECOND}/x-000000": b"a\n"}
    assert os.stat(one.out / "t").st_mode & 0o007 == 0


@pytest.mark.parametrize(
    ("compression", "unpack"),
    [("gzip", gzip.decompress), ("zstd", lambda data: bytes(cramjam.zstd.decompress(data)))],
)
def test_packed_files_can_be_read_after_each_sync(setting, compression, unpack):
    one = setting(compression=compression)
    expected = b""
    for number in range(5):
        one.write(b"%d" % number * 1000)
        expected += b"%d" % number * 1000 + b"\n"
        one.archive.sync()
        (data,) = one.files().values()
        assert unpack(data) == expected
    one.write(b"z" * MEMBER_SIZE_MAX)  # not kept in memory until the next sync
    (data,) = one.files().values()
    assert unpack(data) == expected + b"z" * MEMBER_SIZE_MAX + b"\n"
    one.archive.close()
    assert one.archive.figures.stored_size == len(data)


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_packed_file_without_messages_is_whole(setting, compression):
    one = setting(compression=compression)
    one.archive.tick()
    one.archive.close()
    (data,) = one.files().values()
    assert data
    assert (
        gzip.decompress(data) if compression == "gzip" else bytes(cramjam.zstd.decompress(data))
    ) == b""


def test_packed_files_are_never_continued(setting):
    for _ in range(3):
        one = setting(compression="gzip")
        one.write(b"a")
        one.archive.close()
    assert [name[:9] for name in one.files()] == ["t-000000.", "t-000001.", "t-000002."]


@pytest.mark.parametrize("level", range(1, 10))
def test_gzip_levels(level):
    """Each packs at least about as well as the level of zlib that was asked for."""
    import zlib

    lines = b"".join(
        b'{"user":%d,"path":"/p/%x"}\n' % (n * n % 9973, n * 7919) for n in range(4000)
    )
    ours = packer("gzip", level)(lines)
    theirs = zlib.compressobj(level, zlib.DEFLATED, 31)
    assert gzip.decompress(ours) == lines
    assert len(ours) < 1.07 * len(theirs.compress(lines) + theirs.flush())


def test_a_record_that_does_not_fit_is_taken_off(setting, monkeypatch):
    one = setting()
    one.write(b"a")
    one.archive.sync()
    write = os.write

    def full(fd, data):
        if len(data) <= 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data[:3])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left") as failed:
        one.write(b"bb", b"cc")
    assert failed.value.filename.endswith(f"t.{SECOND}")
    assert one.files() == {f"t.{SECOND}": b"a\n"}


def test_a_file_that_others_write_to_is_not_cut(setting, monkeypatch):
    one = setting()
    one.write(b"a")
    write = os.write

    def full(fd, data):
        with (one.out / f"t.{SECOND}").open("ab") as other:
            other.write(b"other\n")
        monkeypatch.setattr(os, "write", write)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        one.write(b"b")
    assert one.files() == {f"t.{SECOND}": b"a\nother\n"}


def test_two_file_systems(setting, monkeypatch):
    one = setting(work=True)
    monkeypatch.setattr(
        archive_module,
        "join_path",
        lambda folder, name: type(one.out)("/proc" if "work" in str(folder) else "/tmp") / name,
    )
    with pytest.raises(OSError, match="same file system"):
        one.write(b"a")


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_damage_within_a_member_shows(compression, tmp_path):
    """Whichever byte of a block the disk spoils: what is read back is an error or what was written."""
    block = random.Random(5).randbytes(
        300
    )  # it cannot be packed, so most bytes are the block's own
    packed = packer(compression, 3)(block)
    for place in range(len(packed)):
        damaged = bytearray(packed)
        damaged[place] ^= 1
        try:
            read = (
                gzip.decompress(damaged)
                if compression == "gzip"
                else bytes(cramjam.zstd.decompress(bytes(damaged)))
            )
        except Exception as error:
            assert str(error)
        else:
            assert read in {block, b""}, place
