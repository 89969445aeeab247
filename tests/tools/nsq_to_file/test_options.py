"""The command line: what is refused, how, and with which exit status, beside Go's tool."""

import os
import sys

import pytest

from nsqfast.errors import OptionsError
from nsqfast.program.options import declared, defaults
from nsqfast.tools.nsq_to_file.main import main
from nsqfast.tools.nsq_to_file.options import Options, parse
from support.tools import Tool, run_tool, tool_command

SOURCE = "--nsqd-tcp-address=127.0.0.1:1"
TOPIC = "--topic=t"
LOOKUP = "--lookupd-http-address=127.0.0.1:1"

# What Go's tool refuses, with the words that both say it with.
REFUSED = [
    ([], "--nsqd-tcp-address or --lookupd-http-address required"),
    ([TOPIC, SOURCE, LOOKUP], "use --nsqd-tcp-address or --lookupd-http-address not both"),
    ([SOURCE], "--topic or --topic-pattern required"),
    (["--topic-pattern=x", SOURCE], "--lookupd-http-address must be specified when no --topic"),
    ([TOPIC, SOURCE, "--channel="], "--channel is required"),
    ([TOPIC, SOURCE, "word", "other"], "unknown arguments: [word other]"),
    ([TOPIC, SOURCE, "--gzip-level=0"], "invalid --gzip-level value (0), should be 1-9"),
    ([TOPIC, SOURCE, "--gzip-level=10"], "invalid --gzip-level value (10), should be 1-9"),
    ([TOPIC, SOURCE, "--log-level=loud"], "--log-level is invalid"),
    (
        [TOPIC, LOOKUP, "--http-client-connect-timeout=0"],
        "--http-client-connect-timeout should be positive",
    ),
    (
        [TOPIC, LOOKUP, "--http-client-request-timeout=-1s"],
        "--http-client-request-timeout should be positive",
    ),
]


TOOLS = pytest.mark.parametrize("tool", ["nsqfast", pytest.param("go", marks=pytest.mark.go)])


@pytest.fixture
def run(capfd):
    """Runs a tool to its end: exit status, output, what it said."""

    def call(tool, *flags):
        if tool == "go":
            done = run_tool("nsq_to_file", tool, *flags)
            return done.returncode, done.stdout.decode(), done.stderr.decode()
        try:
            status = main(list(flags))
        except SystemExit as ended:
            status = ended.code
        return status, *capfd.readouterr()

    return call


@TOOLS
def test_what_is_refused(run, tool):
    for flags, text in REFUSED:
        status, out, err = run(tool, *flags)
        assert (status, out) == (1, ""), flags
        assert text in err
        assert len(err.splitlines()) == 1


@TOOLS
def test_help_version_and_flags_that_cannot_be_read(run, tool):
    status, out, err = run(tool, "--help")
    assert status == 0
    assert "-skip-empty-files" in (out if tool == "nsqfast" else err)
    status, out, _ = run(tool, "-version")
    assert (status, out.splitlines()[0][:18]) == (0, "nsq_to_file v1.3.0")
    for flag in ("--bogus", "--gzip=perhaps", "--rotate-size=big", "--sync-interval=5", "--topic"):
        status, out, err = run(tool, flag)
        assert (status, out) == (2, "")
        assert (
            "see nsqfast-nsq-to-file --help" if tool == "nsqfast" else "-skip-empty-files"
        ) in err


@pytest.mark.go
def test_every_flag_of_go_is_there_with_its_default():
    lines = run_tool("nsq_to_file", "go", "--help").stderr.decode().splitlines()[1:]
    gos = {}
    for head, text in zip(lines[::2], lines[1::2], strict=True):
        gos[head.split()[0][1:]] = (
            text.rpartition("(default ")[2].removesuffix(")") if "(default " in text else ""
        )
    plain = defaults(Options)
    ours = {"version": ""}
    for item in declared(Options):
        value = plain[item.attribute]
        ours[item.flag] = item.kind.show(value) if value else ""
    assert {flag for flag in gos if gos[flag] != ours.get(flag)} == set()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--sync-interval=0"], "--sync-interval should be positive"),
        (["--sync-interval=-1s"], "--sync-interval should be positive"),
        (["--consumer-opt=bogus,1"], "--consumer-opt: bogus: unknown option"),
        (["--consumer-opt=max_attempts,x"], "--consumer-opt: max_attempts"),
        (
            ["--consumer-opt=heartbeat_interval,5m", "--consumer-opt=read_timeout,10s"],
            "heartbeat_interval",
        ),
        (["--max-in-flight=0"], "--max-in-flight is 0"),
        (["--topic-pattern=x("], "--topic-pattern: missing"),
        (["--on-give-up=drop"], "--on-give-up is 'drop'"),
        (["--format=csv"], "--format is 'csv'; it is one of lines, jsonl, parquet, arrow"),
        (["--compression=lzo"], "--compression is 'lzo'"),
        (["--compression=zstd", "--gzip"], "not both"),
        (["--zstd-level=20"], "should be 1-19"),
        (["--format=arrow", "--gzip"], "knows no gzip"),
        (["--deaths"], "--deaths needs --format=jsonl, parquet or arrow"),
        (["--gzip", "--filename-format=x"], "missing <REV> in --filename-format"),
        (["--format=parquet", "--filename-format=x"], "missing <REV>"),
        (["--rotate-size=1", "--filename-format=x"], "missing <REV>"),
        (["--work-dir=/w", "--filename-format=x"], "missing <REV>"),
        (["--channel=a b"], "--channel: 'a b'"),
    ],
)
def test_what_go_takes_without_a_word_is_named(flags, text):
    with pytest.raises(OptionsError) as refused:
        parse([TOPIC, SOURCE, *flags])
    assert text in str(refused.value)


def test_an_address_without_a_port():
    with pytest.raises(OptionsError, match="missing port"):
        parse([TOPIC, "--lookupd-http-address=127.0.0.1"])


def test_options_that_go_together():
    options = parse([TOPIC, SOURCE, "--gzip", "--consumer-opt=max_attempts,0", "--output-dir=/o"])
    assert (options.compression, options.level, options.work_dir) == ("gzip", 6, "/o")
    # The tool decides about these, whatever the flags say of them.
    parse([TOPIC, SOURCE, "--consumer-opt=max_in_flight,5", "--consumer-opt=user-agent,x"])


def test_columns_without_pyarrow(monkeypatch):
    from nsqfast.tools.nsq_to_file.formats import check_format

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(OptionsError, match=r"pip install 'nsqfast\[arrow\]'"):
        check_format(parse([TOPIC, SOURCE, "--format=parquet"]))
    check_format(parse([TOPIC, SOURCE]))


def test_topics_of_which_none_can_be_archived(tmp_path):
    done = run_tool(
        "nsq_to_file", "nsqfast", "--topic=bad name", SOURCE, f"--output-dir={tmp_path}"
    )
    assert done.returncode == 1
    assert b"couldn't create logger for new topic bad name" in done.stderr
    assert b"FATAL: no topic can be archived" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
@pytest.mark.parametrize("flag", ["--output-dir", "--work-dir"])
def test_a_folder_of_another_user(tmp_path, flag):
    own, theirs = tmp_path / "own", tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 12345, -1)
    folders = {"--output-dir": own, "--work-dir": own, flag: theirs}
    words = [f"{name}={folder}" for name, folder in folders.items()]
    done = run_tool("nsq_to_file", "nsqfast", TOPIC, SOURCE, *words, "--filename-format=t<REV>")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"{theirs} belongs to another user (12345): run as".encode() in line
    assert not list(theirs.iterdir())


@pytest.mark.slow
def test_the_default_folder_is_no_place_to_keep_files():
    command = tool_command("nsq_to_file", "nsqfast", TOPIC, SOURCE, "--skip-empty-files")
    with Tool(command) as tool:
        tool.wait_for(lambda tool: b"no place to keep files" in tool.err)
        assert tool.end() == 0, tool.text
    (line,) = [line for line in tool.err.splitlines() if b"no place to keep files" in line]
    assert b"WARNING: --output-dir is /tmp" in line
