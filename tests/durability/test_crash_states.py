"""The model of a disk that crash states are made from, judged by states that are known."""

import random

import pytest

from durability.crash import log
from durability.crash.disk import Disk
from durability.crash.log import Call
from durability.crash.states import ALL, DATA, NONE, RANDOM, SIDE, make_state
from support.seeds import seeds

FOLDER, FILE, OTHER = 1, 2, 3
DATA_NAME, ACKS_NAME = "t.diskqueue.000000.dat", "t.diskqueue.acks.dat"
DICE = random.Random(1)


def play(*calls, ext4_names=False):
    disk = Disk(ext4_names=ext4_names)
    for kind, inode, *rest in calls:
        a, b, name, other, data, thread = [*rest, *[0, 0, "", "", b"", 1][len(rest) :]]
        disk.apply(Call(kind, thread, 0, 0, inode, a, b, 0, name, other, data))
    return disk


def made(name, inode=FILE):
    return (log.OPENED, inode, 0, 1, name)


def written(data, offset=0, inode=FILE):
    return (log.WRITTEN, inode, offset, 0, "", "", data)


def synced(inode):
    return [(log.SYNC_BEGAN, inode), (log.SYNC_ENDED, inode)]


def files(disk, kind):
    return make_state(disk, kind, DICE).files


def test_a_file_needs_its_own_sync_and_that_of_its_name():
    disk = play(made(DATA_NAME), written(b"1"), *synced(FILE))
    assert (files(disk, NONE), files(disk, ALL)) == ({}, {DATA_NAME: b"1"})
    disk = play(made(DATA_NAME), written(b"1"), *synced(FOLDER))
    assert files(disk, NONE) == {DATA_NAME: b""}
    disk = play(made(DATA_NAME), written(b"1"), *synced(FILE), *synced(FOLDER))
    assert files(disk, NONE) == {DATA_NAME: b"1"}


def test_a_file_system_that_keeps_the_name_of_a_file_that_is_synced():
    disk = play(made(DATA_NAME), written(b"1"), *synced(FILE), ext4_names=True)
    assert files(disk, NONE) == {DATA_NAME: b"1"}


def test_a_sync_speaks_of_what_was_there_when_it_began():
    began, ended = synced(FILE)
    disk = play(
        made(DATA_NAME), *synced(FOLDER), written(b"1"), began, written(b"2", offset=1), ended
    )
    assert (files(disk, NONE), files(disk, ALL)) == ({DATA_NAME: b"1"}, {DATA_NAME: b"12"})


def sync_written(data, offset=0, inode=FILE, thread=1):
    return (log.SYNC_WRITE_BEGAN, inode, offset, 0, "", "", data, thread)


def test_a_write_that_syncs_itself_is_pending_until_it_returns():
    first = [made(DATA_NAME), *synced(FOLDER), written(b"0123"), *synced(FILE)]
    disk = play(*first, sync_written(b"56", offset=1))
    assert (files(disk, NONE), files(disk, ALL)) == ({DATA_NAME: b"0123"}, {DATA_NAME: b"0563"})
    assert disk.under_way(disk.files[FILE])
    disk.apply(Call(log.SYNC_WRITE_ENDED, 1, 0, 0, FILE, 1, 0, 0, "", "", b""))
    assert files(disk, NONE) == {DATA_NAME: b"0563"}
    assert not disk.under_way(disk.files[FILE])


def test_a_write_that_syncs_itself_says_nothing_of_others():
    end = (log.SYNC_WRITE_ENDED, FILE, 4, 0)
    disk = play(
        made(DATA_NAME), *synced(FOLDER), written(b"0123"), sync_written(b"5", offset=4), end
    )
    assert files(disk, NONE) == {DATA_NAME: b"\0\0\0\x005"}
    with pytest.raises(ValueError, match="not synced"):
        play(made(DATA_NAME), written(b"0123"), sync_written(b"5"), (log.SYNC_WRITE_ENDED, FILE))


def test_a_sync_of_a_file_may_overtake_a_write_that_syncs_itself():
    disk = play(
        made(DATA_NAME),
        *synced(FOLDER),
        sync_written(b"5"),
        *synced(FILE),
        (log.SYNC_WRITE_ENDED, FILE),
    )
    assert files(disk, NONE) == {DATA_NAME: b"5"}


def test_a_folder_has_names_of_its_own():
    inner = 4
    first = [(log.FOLDER_MADE, inner, 0, 0, "f.new"), made("f.new/a"), written(b"1"), *synced(FILE)]
    disk = play(*first, *synced(FOLDER))
    assert files(disk, NONE) == {}
    assert make_state(disk, NONE, DICE).folders == ["f.new"]
    disk = play(*first, *synced(inner), (log.RENAMED, 0, 0, 0, "f.new", "f"))
    assert (files(disk, NONE), files(disk, ALL)) == ({}, {"f/a": b"1"})
    disk = play(*first, *synced(inner), (log.RENAMED, 0, 0, 0, "f.new", "f"), *synced(FOLDER))
    assert files(disk, NONE) == {"f/a": b"1"}
    for kind, name in ((log.UNLINKED, "f/a"), (log.FOLDER_REMOVED, "f")):
        disk.apply(Call(kind, 1, 0, 0, 0, 0, 0, 0, name, "", b""))
    state = make_state(disk, ALL, DICE)
    assert (state.files, state.folders) == ({}, [])
    assert files(disk, NONE) == {"f/a": b"1"}


def test_side_files_may_get_there_before_the_data_and_after_it():
    disk = play(
        made(DATA_NAME),
        made(ACKS_NAME, OTHER),
        *synced(FOLDER),
        written(b"1"),
        written(b"2", inode=OTHER),
    )
    assert files(disk, SIDE) == {DATA_NAME: b"", ACKS_NAME: b"2"}
    assert files(disk, DATA) == {DATA_NAME: b"1", ACKS_NAME: b""}


def test_a_rename_is_one_step_and_comes_after_what_made_the_name():
    disk = play(
        made("nsqd.dat", OTHER),
        *synced(FOLDER),
        made("nsqd.dat.1.tmp"),
        (log.RENAMED, 0, 0, 0, "nsqd.dat.1.tmp", "nsqd.dat"),
    )
    seen = {tuple(sorted(make_state(disk, RANDOM, random.Random(n)).files)) for n in range(100)}
    assert seen == {("nsqd.dat",), ("nsqd.dat", "nsqd.dat.1.tmp")}


@pytest.mark.parametrize("seed", seeds("crash states", 5))
def test_what_is_synced_is_in_every_state(seed):
    dice = random.Random(seed)
    writes = [written(bytes([65 + number]) * 700, offset=700 * number) for number in range(30)]
    first = [made(DATA_NAME), *synced(FOLDER), *writes[:20]]
    disk = play(*first, *synced(FILE), *writes[20:])
    whole = files(disk, ALL)[DATA_NAME]
    seen = set()
    for _ in range(60):
        content = make_state(disk, RANDOM, dice).files[DATA_NAME]
        assert content[: 20 * 700] == whole[: 20 * 700]
        assert all(byte in {0, real} for byte, real in zip(content, whole, strict=False))
        seen.add(content)
    assert len(seen) > 20
    assert any(len(some) < len(whole) for some in seen)
