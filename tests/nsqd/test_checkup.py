"""--check: a line for each thing, an exit status, and nothing is changed."""

import datetime as dt
import os
import subprocess
import sys

import pytest
import trustme

from nsqfast.net import checkup as limits
from nsqfast.nsqd import checkup
from nsqfast.nsqd.main import main
from nsqfast.nsqd.options import parse
from nsqfast.program.findings import ERROR, OK, WARNING, Finding, report
from support.server import start_nsqd
from support.waiting import eventually

FREE = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0", "--broadcast-address=127.0.0.1"]


def check(folder, *flags):
    """Level and text by subject; several of one subject as a list."""
    found = {}
    for level, subject, text in checkup.check(parse([f"--data-path={folder}", *FREE, *flags])):
        found.setdefault(subject, []).append((level, text))
    return found


def names_and_contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_line_for_each_and_the_exit_status(capsys):
    assert report([Finding(OK, "a", "fine"), Finding(WARNING, "b", "not\nso")]) == 0
    assert report([Finding(ERROR, "c", "bad"), Finding(OK, "d", "fine")]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "ok       a: fine",
        "warning  b: not\\nso",
        "error    c: bad",
        "ok       d: fine",
    ]


def test_a_good_folder(tmp_path, capsys):
    assert main(["--check", f"--data-path={tmp_path}", *FREE]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "ok       settings: they go together" in lines
    assert f"ok       data path: {tmp_path} is writable, and no other broker has it" in lines
    assert "ok       nsqd.dat: is not there yet" in lines
    assert all(line.startswith(("ok ", "warning ")) for line in lines)
    assert list(tmp_path.iterdir()) == []


def run_nsqd(*flags):
    """In a process of its own, since a program sets up the log of whatever process it runs in."""
    command = [sys.executable, "-m", "nsqfast.nsqd.main", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_the_program(tmp_path):
    """As it is called, with what it does not say on standard error."""
    done = run_nsqd("--check", f"--data-path={tmp_path}/no", *FREE)
    assert (done.returncode, done.stderr) == (1, "")
    assert (
        f"\nerror    data path: failed to lock data-path: open {tmp_path}/no: no such file"
        in done.stdout
    )


def test_a_pipe_that_nobody_reads_is_no_fault(tmp_path):
    command = [sys.executable, "-m", "nsqfast.nsqd.main", "--check", f"--data-path={tmp_path}"]
    command += ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as closed:
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_broker_that_runs(tmp_path):
    with start_nsqd("nsqfast", tmp_path) as broker:
        eventually((tmp_path / "nsqfast.running").exists)  # the last that a start makes
        before = names_and_contents(tmp_path)
        address = f"127.0.0.1:{broker.tcp[1]}"
        found = check(tmp_path, f"--tcp-address={address}")
        ((level, text),) = found["data path"]
        assert level == ERROR
        assert "possibly in use by another instance of nsqd" in text
        assert found["--tcp-address"] == [(ERROR, f"{address}: address already in use")]
        assert found["nsqd.dat"] == [(OK, "0 topics, 0 channels")]
        assert names_and_contents(tmp_path) == before


@pytest.mark.parametrize(
    ("text", "level", "words"),
    [
        ("127.0.0.1", ERROR, "an address is <addr>:<port>"),
        ("nosuchhost.invalid:4150", ERROR, "no such host"),
        ("127.0.0.1:99999", ERROR, "invalid port"),
        ("FOLDER/nsqd.sock", OK, "is free"),
        ("FOLDER/there", ERROR, "exists"),
        ("FOLDER/nowhere/nsqd.sock", ERROR, "is not there or not writable"),
    ],
)
def test_addresses_to_listen_on(tmp_path, text, level, words):
    (tmp_path / "there").touch()
    found = check(tmp_path, f"--tcp-address={text.replace('FOLDER', str(tmp_path))}")
    ((seen, said),) = found["--tcp-address"]
    assert seen == level
    assert words in said
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_addresses_of_others(tmp_path):
    flags = ["127.0.0.1:4160", "nosuchhost.invalid:4160", "127.0.0.1"]
    found = check(
        tmp_path,
        *[f"--lookupd-tcp-address={text}" for text in flags],
        "--auth-http-address=http://user:secret@127.0.0.1:1/x",
        "--statsd-address=127.0.0.1:8125",
        "--broadcast-address=nosuchhost.invalid",
    )
    assert found["--lookupd-tcp-address"] == [
        (OK, "127.0.0.1:4160 is 127.0.0.1"),
        (WARNING, "nosuchhost.invalid:4160: no such host"),
        (ERROR, "127.0.0.1: an address is <addr>:<port>"),
    ]
    assert found["--auth-http-address"][0][0] == OK
    assert "secret" not in str(found)
    assert found["--statsd-address"] == [(OK, "127.0.0.1:8125 is 127.0.0.1")]
    assert found["--broadcast-address"] == [(WARNING, "nosuchhost.invalid: no such host")]


def test_addresses_open_to_all(tmp_path):
    ((level, text),) = check(tmp_path, "--tcp-address=:0")["listening addresses"]
    assert level == WARNING
    assert "may use --tcp-address=:0: " in text
    assert "listening addresses" not in check(tmp_path)


# -- the folder


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_not_writable(tmp_path):
    tmp_path.chmod(0o500)
    assert check(tmp_path)["data path"][0][0] == ERROR


@pytest.mark.parametrize(
    ("content", "level", "text"),
    [
        (b'{"topics":[{"name":"t","channels":[{"name":"c"}]}]}', OK, "1 topics, 1 channels"),
        (b"", WARNING, "cannot be used - unexpected end of JSON input: "),
        (b"[1]", WARNING, "cannot be used - an object was expected"),
        (b"\x00\x01 somebody else's", WARNING, "cannot be used - "),
    ],
)
def test_the_list_of_topics(tmp_path, content, level, text):
    (tmp_path / "nsqd.dat").write_bytes(content)
    ((seen, said),) = check(tmp_path)["nsqd.dat"]
    assert seen == level
    assert said.startswith(text)
    assert names_and_contents(tmp_path) == {"nsqd.dat": content}


def test_damaged_positions_and_bad_files(tmp_path):
    (tmp_path / "a.diskqueue.meta.dat").write_text("1\n0,0\n0,30\nsealed 0,0\n")
    (tmp_path / "b.diskqueue.meta.dat").write_text("somebody else's")
    (tmp_path / "c.diskqueue.000000.dat.bad").touch()
    found = check(tmp_path)
    ((level, text),) = found["queues on disk"]
    assert (level, text.partition(" ")[0]) == (WARNING, "b.diskqueue.meta.dat")
    ((level, text),) = found[".bad files"]
    assert (level, text.partition(" ")[0]) == (WARNING, "c.diskqueue.000000.dat.bad")


def test_file_systems(tmp_path, monkeypatch):
    assert check("/dev/shm")["file system"] == [(WARNING, "tmpfs: its files are in memory")]
    monkeypatch.setattr(checkup, "FREE_PART_LEAST", 1.1)
    ((level, text),) = check(tmp_path)["free space"]
    assert level == WARNING
    assert "publishes are refused" in text


# -- certificates


def test_good_certificates(tmp_path, certificates):
    flags = [*certificates.flags(), f"--tls-root-ca-file={certificates.path('ca.crt')}"]
    found = check(tmp_path, *flags)
    assert found["certificate"][0][0] == OK
    assert found["--tls-cert"][0][0] == OK
    assert found["--tls-root-ca-file"][0][0] == OK
    assert "--https-address" in found


@pytest.mark.parametrize(("days", "level"), [(-1, ERROR), (10, WARNING), (200, OK)])
def test_when_certificates_end(tmp_path, days, level):
    end = dt.datetime.now(dt.UTC) + dt.timedelta(days=days, hours=1)
    begin = end - dt.timedelta(days=300)
    leaf = trustme.CA().issue_cert("127.0.0.1", not_before=begin, not_after=end)
    leaf.private_key_pem.write_to_path(str(tmp_path / "key"))
    leaf.cert_chain_pems[0].write_to_path(str(tmp_path / "crt"))
    found = check(tmp_path, f"--tls-cert={tmp_path}/crt", f"--tls-key={tmp_path}/key")
    ((seen, text),) = found["--tls-cert"]
    assert seen == level
    assert f"{end:%Y-%m-%d}" in text


# -- limits


def test_limits(tmp_path, monkeypatch):
    monkeypatch.setattr(limits.resource, "getrlimit", lambda _kind: (1024, 1024))
    (tmp_path / "vm").mkdir()
    (tmp_path / "vm" / "max_map_count").write_text("1000\n")
    monkeypatch.setattr(limits, "Path", lambda _proc, *parts: tmp_path.joinpath(*parts))
    found = check(tmp_path, f"--max-memory={1 << 62}")
    assert found["ulimit -Hn"][0] == (
        WARNING,
        "1024 is less than 4096: every connection and every busy queue needs one",
    )
    assert found["vm.max_map_count"][0][1].endswith("sysctl -w vm.max_map_count=65530")
    assert found["net.core.somaxconn"] == [(WARNING, "it cannot be read here")]
    assert found["--max-memory"][0][0] == WARNING
    monkeypatch.setattr(limits.resource, "getrlimit", lambda _kind: (8192, 8192))
    assert check(tmp_path)["ulimit -Hn"] == [(OK, "8192")]
    assert check(tmp_path, "--max-connections=8000")["ulimit -Hn"][0][0] == WARNING


# -- the other daemons


@pytest.mark.parametrize("program", ["nsqlookupd", "nsqadmin"])
def test_the_other_daemons(program, tmp_path):
    flags = [
        "--http-address=127.0.0.1:0",
        "--nsqd-http-address=127.0.0.1:1",
        "--auth-file=/nowhere",
    ]
    if program == "nsqlookupd":
        flags = [
            "--tcp-address=127.0.0.1:0",
            "--http-address=127.0.0.1",
            "--broadcast-address=127.0.0.1",
        ]
    command = [sys.executable, "-m", f"nsqfast.{program}.main", "--check", *flags]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=30, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (1, "")
    errors = [line for line in done.stdout.splitlines() if line.startswith("error ")]
    wanted = {
        "nsqlookupd": "--http-address: 127.0.0.1: an address is <addr>:<port>",
        "nsqadmin": "--auth-file: /nowhere: no such file or directory",
    }
    assert len(errors) == 1
    assert wanted[program] in errors[0]
    assert list(tmp_path.iterdir()) == []
