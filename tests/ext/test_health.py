"""What fails on disk: one line at once, one a minute, one when it is over; `/ping` says NOK for as long."""

import errno
import logging

import pytest
from nsqfast._ext.storage.health import Health

S = 1_000_000_000
A, B, C = (f"/d/{name}.diskqueue.000000.dat" for name in "abc")


class Disk:
    """A Health whose clock is ours, and the lines it logged."""

    def __init__(self, caplog):
        self.health = Health()
        self.caplog = caplog
        self.now_s = 1000

    def fail(self, path, error=errno.ENOSPC, operation="write"):
        text = f"{operation} {path}: it failed"
        self.health.note_failure(operation, path, text, error, self.now_s * S)
        if operation != "read":
            self.health.refused(1)

    def succeed(self, path, operation="write"):
        self.health.note_success(operation, path, self.now_s * S)

    def lines(self):
        found = [(record.levelname, record.getMessage()) for record in self.caplog.records]
        self.caplog.clear()
        return found


@pytest.fixture
def disk(caplog):
    caplog.set_level(logging.INFO, "nsqd")
    return Disk(caplog)


def test_lines_of_a_full_disk(disk):
    for _ in range(600):  # five minutes
        disk.fail(A)
        disk.fail(B)
        disk.now_s += 0.5
    disk.succeed(C)
    lines = disk.lines()
    assert [level for level, _ in lines] == ["ERROR"] * 5 + ["WARNING"]
    assert lines[0][1] == f"DISK: write {A}: it failed"
    assert lines[1][1] == (
        f"DISK: write {A}: it failed; 60 s later 2 queue(s) fail, 240 message(s) refused"
    )
    assert lines[-1][1] == "DISK: writing works again after 300 s, 1200 message(s) refused"
    assert disk.health.text == "OK"


def test_a_thousand_queues_that_fail_share_their_lines(disk):
    for second in range(61):
        for number in range(1000):
            disk.fail(f"/d/t:{number}.diskqueue.000000.dat", errno.EIO, "read")
        disk.now_s = 1001 + second
    assert [text.partition("; ")[2] for _, text in disk.lines()] == [
        "",
        "60 s later 1000 queue(s) fail",
    ]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE, errno.EROFS])
def test_what_every_queue_suffers_from_ends_with_any_success(disk, error):
    disk.fail(A, error)
    disk.succeed(B)
    assert disk.health.text == "OK"


def test_an_error_of_one_file_stands_until_its_queue_succeeds(disk):
    disk.fail(A, errno.EIO)
    disk.succeed(B)
    assert disk.health.text == f"NOK - write {A}: it failed"
    disk.succeed(A)
    assert disk.health.text == "OK"


def test_a_queue_that_does_not_try_again_is_not_waited_for(disk):
    disk.fail(A, errno.EIO)
    disk.now_s += 60
    assert disk.health.text.startswith("NOK")
    disk.succeed(B)
    assert disk.health.text == "OK"


def test_kinds_have_their_own_state(disk):
    disk.fail(A, errno.EIO, "read")
    disk.fail("data", errno.EIO, "sync")
    disk.succeed(A)
    disk.succeed("", "sync")
    assert disk.health.text == f"NOK - read {A}: it failed"
    disk.succeed(A, "read")
    assert disk.health.text == "OK"
    assert [text for _, text in disk.lines()][2:] == [
        "DISK: syncing works again after 0 s, 1 message(s) refused",
        "DISK: reading works again after 0 s",
    ]


def test_small_writes_fit_where_large_ones_do_not(disk):
    """The state is told as it is; of lines there are two a minute."""
    for _ in range(6000):
        disk.fail(A)
        assert disk.health.text.startswith("NOK")
        disk.succeed(A)
        assert disk.health.text == "OK"
        disk.now_s += 0.02
    assert [level for level, _ in disk.lines()] == ["ERROR", "WARNING"] * 2


def test_another_trouble_has_lines_of_its_own(disk):
    for _ in range(3):
        disk.fail(A)
        disk.succeed(A)
        disk.now_s += 11
    assert len(disk.lines()) == 6
