"""The probe of containers, against real daemons and against servers that answer badly."""

import socket
import sys
import threading

import pytest

from nsqfast.tools import probe
from support.server import DRAINED, Server, start_nsqd, start_nsqlookupd


def run(capsys, *words):
    """Exit status, and what it says."""
    status = probe.main(list(words))
    return status, capsys.readouterr().err


@pytest.mark.slow
def test_each_daemon_answers(tmp_path, capsys):
    flags = ["--http-address=127.0.0.1:0", "--nsqd-http-address=127.0.0.1:1"]
    admin = Server([sys.executable, "-m", "nsqfast.nsqadmin.main", *flags], listeners=("HTTP",))
    with admin, start_nsqd("nsqfast", tmp_path) as nsqd, start_nsqlookupd("nsqfast") as lookupd:
        for server in (admin, nsqd, lookupd):
            host, port = server.http
            assert run(capsys, f"{host}:{port}") == (0, "")


@pytest.mark.slow
def test_over_a_unix_socket(tmp_path, capsys):
    path = tmp_path / "http"
    with start_nsqd("nsqfast", tmp_path, f"--http-address={path}", listeners=("TCP",)) as nsqd:
        nsqd.wait_for_line("HTTP: listening")
        assert run(capsys, str(path)) == (0, "")
    assert run(capsys, str(path))[0] == 1


def test_nobody_listens(capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    status, said = run(capsys, f"127.0.0.1:{port}")
    assert (status, said) == (1, f"127.0.0.1:{port}: [Errno 111] Connection refused\n")


class Answering:
    """A server that gives one answer after the other, and then listens no more."""

    def __init__(self, *answers):
        self.requests = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, args=(answers,))

    def _serve(self, answers):
        with self._server:
            for answer in answers:
                connection, _ = self._server.accept()
                with connection:
                    if answer:
                        self.requests.append(connection.recv(4096).partition(b"\r\n")[0].decode())
                        connection.sendall(answer.encode())

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join()


def test_a_daemon_that_is_not_well(capsys):
    answer = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 3\r\n\r\nNOK"
    with Answering(answer) as server:
        status, said = run(capsys, server.address)
    wanted = f"{server.address}: GET /ping: HTTP/1.1 500 Internal Server Error NOK\n"
    assert (status, said) == (1, wanted)
    assert server.requests == ["GET /ping HTTP/1.1"]


@pytest.mark.parametrize("answer", ["", "nonsense", "HTTP/1.1 "])
def test_no_answer_is_no_good_answer(answer, capsys):
    with Answering(answer) as server:
        assert run(capsys, server.address)[0] == 1


def test_a_silent_daemon(capsys, monkeypatch):
    monkeypatch.setattr(probe, "TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        status, said = run(capsys, f"127.0.0.1:{server.getsockname()[1]}")
    assert status == 1
    assert "timed out" in said


def test_a_drain_is_over_when_nobody_listens_any_more(capsys, monkeypatch):
    monkeypatch.setattr(probe, "LOOK_S", 0.01)
    # Two looks find it alive.
    with Answering("HTTP/1.1 200 OK\r\n\r\n", "", "") as server:
        assert run(capsys, "--drain=20", server.address) == (0, "")
    assert server.requests == ["POST /drain?deadline=20s HTTP/1.1"]


def test_a_drain_that_is_refused(capsys):
    with Answering("HTTP/1.1 404 Not Found\r\n\r\n") as server:
        assert run(capsys, "--drain=20", server.address)[0] == 1


def test_a_drain_that_takes_too_long(capsys, monkeypatch):
    monkeypatch.setattr(probe, "END_S", 0.0)
    with Answering("HTTP/1.1 200 OK\r\n\r\n") as server:
        status, said = run(capsys, "--drain=0", server.address)
    assert (status, said) == (1, f"{server.address}: it still listens after 0 s\n")


@pytest.mark.parametrize(
    "words", [[], ["--drain=1"], ["--drain=x", "a:1"], ["--help"], ["a:1", "b:2"]]
)
def test_other_words(words, capsys):
    assert run(capsys, *words) == (2, probe.USAGE)


@pytest.mark.slow
def test_a_broker_that_drains(tmp_path, capsys):
    with start_nsqd("nsqfast", tmp_path, "--http-drain") as nsqd:
        host, port = nsqd.http
        assert run(capsys, "--drain=20", f"{host}:{port}") == (0, "")
        assert nsqd.process.wait(50) == DRAINED
