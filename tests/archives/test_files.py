"""Files, folders and globs, and what each file is."""

import os
import shutil

import pytest

from nsqfast.archives import FileFinder, FileNames
from nsqfast.archives.files import list_files
from nsqfast.errors import OptionsError
from support.archives import members, write_arrow, write_parquet
from support.nobody import as_nobody


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(*names, data=b"a\n"):
    for name in names:
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "wb") as file:
            file.write(data)


def find(*words, formats=""):
    finder = FileFinder(FileNames(), formats)
    return [one.path for one in finder.find(words)], finder.skipped


def kind(path, formats=""):
    (found,) = FileFinder(FileNames(), formats).find([str(path)])
    return found.format, found.packer


def test_words_keep_their_order_and_folders_go_by_time(folder):
    make("z.log", "d/x.h.2026-11-22_09.log", "d/sub/a.h.2026-11-22_08.log", "d/b.log")
    found, skipped = find("z.log", "d")
    assert found == ["z.log", "d/sub/a.h.2026-11-22_08.log", "d/x.h.2026-11-22_09.log", "d/b.log"]
    assert skipped == []
    assert find("d/*.log")[0] == ["d/x.h.2026-11-22_09.log", "d/b.log"]
    assert find("d/**/*.log")[0] == found[1:]


def test_a_file_that_is_meant_twice_is_read_once(folder):
    make("d/a.log")
    os.symlink("a.log", "d/link.log")
    assert find("d/a.log", "d", "./d/*.log")[0] == ["d/a.log"]


def test_in_folders_only_what_looks_like_an_archive(folder):
    make("d/a.log", "d/.hidden.log", "d/.git/b.log", "d/nsqd.dat", "d/x.parquet.part")
    make("d/x.parquet.rows", "d/y.parquet.rows", "d/y.parquet", "d/c.jsonl.zst")
    os.mkfifo("d/pipe.log")
    found, skipped = find("d")
    assert found == ["d/a.log", "d/c.jsonl.zst", "d/x.parquet.rows", "d/y.parquet"]
    assert skipped == ["d/nsqd.dat"]
    # Whoever says what all files are means all of them.
    assert "d/nsqd.dat" in find("d", formats="lines")[0]
    assert find("d/nsqd.dat")[0] == ["d/nsqd.dat"]


def test_a_name_with_signs_of_a_glob_is_that_file_if_there_is_one(folder):
    make("a[1].log", "a1.log")
    assert find("a[1].log")[0] == ["a[1].log"]
    os.remove("a[1].log")
    assert find("a[1].log")[0] == ["a1.log"]


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("gone.log", "gone.log: no such file or directory"),
        ("gone*.log", "no file has such a name"),
        ("d/gone/x", "no such file"),
        ("dangling.log", "dangling.log: no such file"),
    ],
)
def test_what_is_not_there_is_named(folder, word, text):
    make("d/a.log")
    os.symlink("nowhere", "dangling.log")
    with pytest.raises(OptionsError, match=text.replace(".", r"\.")):
        find("d", word)


def test_what_cannot_be_read_is_named(folder):
    """A backup without one of its folders is none; better to know before."""
    os.chmod(folder, 0o755)
    make("d/a.log", "d/closed/b.log", "e/c.log")
    os.chmod("d/closed", 0)
    os.chmod("e/c.log", 0)
    with as_nobody():
        with pytest.raises(OptionsError, match="d/closed: permission denied"):
            find("d")
        with pytest.raises(OptionsError, match=r"e/c\.log: permission denied"):
            find("e/c.log")


def test_stdin():
    (found,) = FileFinder(FileNames()).find(["-"])
    assert found.is_stdin
    assert (found.format, found.packer) == ("lines", "")
    assert kind("-", "jsonl") == ("jsonl", "")
    for formats in ("parquet", "arrow"):
        with pytest.raises(OptionsError, match="give .* as a file"):
            find("-", formats=formats)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.log", ("lines", "")),
        ("a", ("lines", "")),
        ("a.log.GZ", ("lines", "gzip")),
        ("a.zst", ("lines", "zstd")),
        ("a.jsonl", ("jsonl", "")),
        ("a.ndjson.gz", ("jsonl", "gzip")),
        ("a.parquet", ("parquet", "")),
        ("a.feather", ("arrow", "")),
        ("a.parquet.rows", ("arrow", "")),
    ],
)
def test_a_name_says_what_it_is(folder, name, expected):
    make(name, data=b"")
    assert kind(name) == expected
    assert kind(name, "jsonl") == ("jsonl", expected[1])


def test_first_bytes_win_over_the_name(folder):
    for packer in ("gzip", "zstd"):
        make("a.log", data=members([b"a\n"], packer)[0])
        assert kind("a.log") == ("lines", packer)
    write_parquet(folder / "a.log", [b"a"])
    assert kind("a.log")[0] == "parquet"
    write_arrow(folder / "a.log", [b"a"])
    assert kind("a.log")[0] == "arrow"


def test_a_pipe_is_not_opened_before_it_is_read(folder):
    """This would wait for its writer."""
    os.mkfifo("pipe")
    assert kind("pipe") == ("lines", "")


def test_a_folder_that_cannot_be_listed_is_named(tmp_path):
    """Its path is longer than the kernel takes."""
    name = "x" * 250
    place = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir(name, dir_fd=place)
        below = os.open(name, os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(place)
    with pytest.raises(OptionsError, match="x: file name too long$"):
        list(list_files(tmp_path))
    shutil.rmtree(tmp_path / name)
