"""The thread that flushes: tickets, batches, errors, and the bell."""

import os
import select
from pathlib import Path

import pytest
from nsqfast._ext.storage.diskqueue.syncer import Syncer
from nsqfast._ext.storage.health import Health


@pytest.fixture
def data_fd(tmp_path):
    fd = os.open(tmp_path / "data", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def ring(syncer):
    assert select.select([syncer.fileno()], [], [], 10)[0]


def test_one_batch(syncer, data_fd):
    assert syncer.request_fd(data_fd) == 1
    assert syncer.request_fd(data_fd) == 1
    syncer.wait(1)
    ring(syncer)
    assert syncer.completed() == (1, "")
    assert not select.select([syncer.fileno()], [], [], 0)[0]


def test_next_batch_gathers_and_is_started_by_the_result(syncer, data_fd):
    first = syncer.request_fd(data_fd)
    syncer.start_batch()
    second = syncer.request_fd(data_fd)
    assert second == first + 1
    while syncer.done_ticket < second:
        ring(syncer)
        syncer.completed()
    assert syncer.done_ticket == second


def test_pending_is_told_once_per_batch(syncer, data_fd):
    told = []
    syncer.on_pending = lambda: told.append(syncer.open_ticket)
    for _ in range(3):
        syncer.request_fd(data_fd)
    syncer.start_batch()
    syncer.request_fd(data_fd)
    assert told == [1, 2]


def test_error_is_reported_once(syncer, data_fd):
    # A pipe cannot be synced: the simplest disk error there is.
    reader, writer = os.pipe()
    syncer.wait(syncer.request_fd(writer))
    os.close(reader)
    os.close(writer)
    ring(syncer)
    done, error = syncer.completed()
    assert (done, error) == (1, "sync: invalid argument")
    assert syncer.health.text == "NOK - sync data: invalid argument"
    syncer.wait(syncer.request_fd(data_fd))
    assert syncer.completed() == (2, "")


def test_the_caller_may_close_at_once(syncer, tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for i in range(100):
        fd = os.open(tmp_path / str(i), os.O_RDWR | os.O_CREAT)
        ticket = syncer.request_fd(fd)
        os.close(fd)
    syncer.wait(ticket)
    assert syncer.completed() == (1, "")
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1


def test_closed_descriptor(syncer):
    with pytest.raises(OSError, match="Bad file"):
        syncer.request_fd(9999)


def test_unknown_ticket(syncer):
    with pytest.raises(ValueError, match="never given out"):
        syncer.wait(5)


def test_close_flushes_and_may_be_repeated(data_fd):
    syncer = Syncer(Health())
    syncer.request_fd(data_fd)
    syncer.close()
    assert syncer.done_ticket == 1
    syncer.close()
    assert syncer.request_fd(data_fd) == 2
    syncer.close()
    assert syncer.done_ticket == 2


def test_fresh_health():
    assert Health().text == "OK"


def test_figures_grow(syncer, data_fd):
    assert syncer.figures() == (0, 0, 0.0)
    reading, writing = os.pipe()
    for _ in range(3):
        syncer.request_fd(data_fd)
    syncer.wait(1)
    count, failed_count, time_s = syncer.figures()
    assert (count, failed_count) == (3, 0)
    assert 0 < time_s < 10
    ticket = syncer.request_fd(writing)  # a pipe cannot be flushed
    syncer.request_fd(data_fd)
    syncer.wait(ticket)
    assert syncer.figures()[:2] == (5, 1)
    assert syncer.figures()[2] > time_s
    os.close(reading)
    os.close(writing)


def test_a_large_batch_is_whole(syncer, data_fd):
    """It is flushed by several threads: each file once, and an error anywhere is the batch's."""
    reading, writing = os.pipe()
    failing = {7, 8, 300, 499}
    for number in range(500):
        ticket = syncer.request_fd(writing if number in failing else data_fd)
    syncer.wait(ticket)
    assert syncer.figures()[:2] == (500, len(failing))
    assert syncer.completed() == (1, "sync: invalid argument")
    syncer.wait(syncer.request_fd(data_fd))
    assert syncer.completed() == (2, "")
    assert syncer.figures()[:2] == (501, len(failing))
    os.close(reading)
    os.close(writing)
