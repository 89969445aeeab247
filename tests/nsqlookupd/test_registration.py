"""Who may register, with --registration-secret-file, and how nsqd proves that it may."""

import json
import signal

import pytest

from support.commands import run_command
from support.lookup import Node, identify_as, producers, topics
from support.prometheus import scrape
from support.server import ROOT, program, start_nsqd, start_nsqlookupd
from support.waiting import wait_until
from support.web import get, post

SECRET = "s\u00e9same open"


@pytest.fixture
def secret_file(tmp_path):
    path = tmp_path / "secret"
    path.write_text(f" {SECRET}\n")
    return path


def flag(path):
    return f"--registration-secret-file={path}"


def answer_to(lookupd, **changed):
    with Node(lookupd.tcp) as node:
        node.send(identify_as(**changed))
        return node.read()


WRONG = [
    {},
    {"registration_secret": ""},
    {"registration_secret": "sesame"},
    {"registration_secret": SECRET + "x"},
]


def test_a_peer_without_the_secret(secret_file):
    with start_nsqlookupd("nsqfast", flag(secret_file)) as lookupd:
        for wrong in WRONG:
            with Node(lookupd.tcp) as node:
                node.send(identify_as(**wrong) + b"REGISTER t\n")
                assert node.read().startswith(b"E_UNAUTHORIZED IDENTIFY has ")
                assert node.read_to_end() == b""
        assert topics(lookupd.http) == []
        with Node(lookupd.tcp) as node:
            node.identify(registration_secret=SECRET)
            node.register("t")
            found = get(lookupd.http, "/nodes").body + get(lookupd.http, "/debug").body
            assert b"registration" not in found
            assert producers(lookupd.http, "t") == [node.remote]
        value = scrape(lookupd.http).value
        assert value("nsq_refused_total", reason="wrong_registration_secret") == len(WRONG)
        assert value("nsqlookupd_errors_total", code="E_UNAUTHORIZED") == len(WRONG)
        lookupd.stop()
        refused = [line for line in lookupd.lines if "E_UNAUTHORIZED" in line]
        assert len(refused) == len(WRONG)
        assert all("give nsqd --registration-secret-file" in line for line in refused)
        assert not any("same" in line for line in lookupd.lines)


def test_a_secret_that_nobody_asks_for(secret_file):
    with start_nsqlookupd("nsqfast") as lookupd:
        assert json.loads(answer_to(lookupd, registration_secret="x"))["version"] == "1.3.0"


def test_a_new_secret(secret_file):
    """Who is connected stays; a file without a secret changes nothing."""
    with start_nsqlookupd("nsqfast", flag(secret_file)) as lookupd, Node(lookupd.tcp) as old:
        old.identify(registration_secret=SECRET)
        secret_file.write_text("new")
        lookupd.process.send_signal(signal.SIGHUP)
        lookupd.wait_for_line("SIGHUP: certificates and secret reloaded")
        assert answer_to(lookupd, registration_secret=SECRET).startswith(b"E_UNAUTHORIZED")
        secret_file.write_text("")
        lookupd.process.send_signal(signal.SIGHUP)
        lookupd.wait_for_line("SIGHUP: certificates and secret stay as they were")
        assert answer_to(lookupd, registration_secret="new").startswith(b"{")
        assert answer_to(lookupd, registration_secret="").startswith(b"E_UNAUTHORIZED")
        old.register("t")


@pytest.mark.parametrize("name", ["nsqlookupd", "nsqd"])
@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff", b"x" * 4097])
def test_a_file_without_a_secret(tmp_path, name, content):
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    done = run_command(*program(name, "nsqfast"), flag(path), cwd=ROOT)
    assert done.returncode == 1
    assert f"--registration-secret-file: {'open ' * (content is None)}{path}" in done.stderr
    assert "Traceback" not in done.stderr


def test_nsqd_sends_it(tmp_path, secret_file):
    """A broker without it is told why it is not listed, and is as soon as it has the right one."""
    own = tmp_path / "own"
    own.write_text("wrong")
    folder = tmp_path / "data"
    folder.mkdir()
    with start_nsqlookupd("nsqfast", flag(secret_file)) as lookupd:
        address = f"--lookupd-tcp-address={lookupd.tcp[0]}:{lookupd.tcp[1]}"
        with start_nsqd("nsqfast", folder, address, flag(own)) as nsqd:
            post(nsqd.http, "/topic/create?topic=t")
            nsqd.wait_for_line("E_UNAUTHORIZED IDENTIFY has a wrong registration_secret")
            own.write_text(SECRET)
            nsqd.process.send_signal(signal.SIGHUP)
            nsqd.wait_for_line("SIGHUP: certificates reloaded")
            post(nsqd.http, "/topic/create?topic=u")
            wait_until(lambda: topics(lookupd.http) == ["t", "u"])
            assert len(producers(lookupd.http, "t")) == 1
            nsqd.stop()
            assert not any("same open" in line for line in nsqd.lines)
