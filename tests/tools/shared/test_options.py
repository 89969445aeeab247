"""Flags that tools share are read as Go's are."""

import re
import subprocess
import sys
from dataclasses import dataclass

import pytest

from nsqfast.errors import OptionsError
from nsqfast.program.options import FLOAT, STRING, FlagError, PlainError, option
from nsqfast.tools.shared.client import client_config
from nsqfast.tools.shared.options import CLIENT_OPTIONS, SourceOptions, parse_tool
from nsqfast.wire.names import RULE
from support.commands import run_command


@dataclass(slots=True)
class Options(SourceOptions):
    sample: float = option(FLOAT, 1.0, "share of the messages")


def parse(*words):
    return parse_tool(Options, list(words), "nsq_tool", "Does something.")


def test_one_hyphen_or_two_and_repeated_flags():
    options = parse("-nsqd-tcp-address", "a:1", "--nsqd-tcp-address=b:2", "--sample", "0.5")
    assert options.nsqd_tcp_address == ["a:1", "b:2"]
    assert options.sample == 0.5
    options.check_source()


def test_version_is_printed_and_nothing_else_happens(capsys):
    with pytest.raises(SystemExit) as ended:
        parse("--version")
    assert ended.value.code == 0
    assert capsys.readouterr().out.splitlines()[0] == "nsq_tool v1.3.0"


def test_help_goes_to_stdout(capsys):
    with pytest.raises(SystemExit) as ended:
        parse("--help")
    assert ended.value.code == 0
    assert "\nDoes something.\n" in (text := capsys.readouterr().out)
    assert "--consumer-opt value" in text


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ("bogus,1", "bogus: unknown option"),
        ("max_attempts,x", "max_attempts"),
        ("msg_timeout,1000", "msg_timeout: invalid duration"),
        ("sample-rate,200", "sample_rate: '200' is out of bounds"),
        ("snappy,maybe", "snappy: invalid boolean"),
    ],
)
def test_a_wrong_setting_of_the_client_is_named(item, text):
    with pytest.raises(FlagError) as refused:
        parse(f"--consumer-opt={item}")
    first, *rest = str(refused.value).splitlines()
    assert first.startswith(f'invalid value "{item}" for flag -consumer-opt: ')
    assert text in first
    assert rest == ["see nsqfast-nsq-tool --help"]


def test_settings_that_only_fit_together_are_read_one_by_one():
    items = ["heartbeat_interval,90s", "read_timeout,2m", "snappy"]
    options = parse(*[f"--consumer-opt={item}" for item in items])
    config = client_config("nsq_tool", options.consumer_opt, max_in_flight=7)
    assert config.snappy
    assert config.max_in_flight == 7
    assert config.user_agent.startswith("nsq_tool/1.3.0 nsqfast/")


def test_settings_that_do_not_fit_together_are_an_error():
    with pytest.raises(OptionsError, match="heartbeat_interval"):
        client_config("nsq_tool", ["heartbeat_interval,90s"])


def test_what_the_tool_decides_is_not_the_users():
    config = client_config("nsq_tool", ["max-in-flight,9", "user_agent,me"], max_in_flight=7)
    assert config.max_in_flight == 7
    assert config.user_agent.startswith("nsq_tool/")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "--nsqd-tcp-address or --lookupd-http-address required"),
        (
            ("--nsqd-tcp-address=a:1", "--lookupd-http-address=b:2"),
            "use --nsqd-tcp-address or --lookupd-http-address not both",
        ),
        (("--nsqd-tcp-address=a:1", "--max-in-flight=0"), "--max-in-flight is 0"),
        (("--nsqd-tcp-address=a:1", "--on-give-up=drop"), "--on-give-up is 'drop'"),
        (("--nsqd-tcp-address=a:1", "--on-give-up=topic:a b"), "no name of a topic"),
        (("--nsqd-tcp-address=a:1", "--on-give-up=exit:now"), "--on-give-up is 'exit:now'"),
    ],
)
def test_what_cannot_be_honoured_is_named(words, text):
    with pytest.raises(PlainError, match=text):
        parse(*words).check_source()


SOURCE, TO = "--nsqd-tcp-address=127.0.0.1:1", "--destination-nsqd-tcp-address=127.0.0.1:1"


@pytest.mark.parametrize(
    ("line", "flag", "kind"),
    [
        ("nsq-tail SOURCE --topic=a/b", "--topic", "topic"),
        ("nsq-tail SOURCE --topic=t --channel=a/b", "--channel", "channel"),
        ("nsq-stat --nsqd-http-address=127.0.0.1:1 --topic=a/b --channel=c", "--topic", "topic"),
        (
            "nsq-stat --nsqd-http-address=127.0.0.1:1 --topic=t --channel=a/b",
            "--channel",
            "channel",
        ),
        ("nsq-to-file SOURCE --topic=t --channel=a/b", "--channel", "channel"),
        ("nsq-to-http SOURCE --topic=a/b --channel=c --post=http://x/", "--topic", "topic"),
        ("nsq-to-http SOURCE --topic=t --channel=a/b --post=http://x/", "--channel", "channel"),
        ("nsq-to-nsq SOURCE TO --topic=a/b", "--topic is invalid", "topic"),
        (
            "nsq-to-nsq SOURCE TO --topic=t --destination-topic=a/b",
            "--destination-topic is invalid",
            "topic",
        ),
        ("nsq-to-nsq SOURCE TO --topic=t --channel=a/b", "--channel is invalid", "channel"),
        ("nsq-to-nsq SOURCE TO --topic=t --on-give-up=topic:a/b", "--on-give-up", "topic"),
        ("to-nsq SOURCE --topic=a/b", "--topic", "topic"),
        ("replay SOURCE --topic=a/b /nope", "--topic", "topic"),
        ("nsq-spool SOURCE --spool=/nope --topic=a/b --channel=c", "--topic", "topic"),
        ("nsq-spool SOURCE --spool=/nope --topic=t --channel=a/b", "--channel", "channel"),
    ],
)
def test_an_invalid_name_says_what_a_name_may_be(line, flag, kind):
    words = line.replace("SOURCE", SOURCE).replace("TO", TO).split()
    done = run_command(sys.executable, "-m", "nsqfast", *words, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (1, "")
    (said,) = done.stderr.splitlines()
    assert said.endswith(f" {flag}: 'a/b' is no name of a {kind}; it is {RULE}")


# ---- secrets


@dataclass(slots=True)
class RelayOptions(SourceOptions):
    producer_opt: list[str] = option(CLIENT_OPTIONS, [], "setting of the producer")
    destination_auth_secret_file: str = option(STRING, "", "file")


@pytest.fixture
def secret_file(tmp_path):
    path = tmp_path / "secret"
    path.write_text("s,3 cret\n")
    return path


def secret_of(options):
    return client_config("nsq_tool", options.consumer_opt).auth_secret


@pytest.mark.parametrize(
    ("words", "variable", "secret"),
    [
        ((), "", ""),
        ((), "of-environment", "of-environment"),
        (("--auth-secret-file={}",), "of-environment", "s,3 cret"),
        (("--auth-secret-file={}", "--consumer-opt=auth_secret,of-argv"), "x", "of-argv"),
    ],
    ids=["none", "environment", "file", "argv"],
)
def test_where_a_secret_comes_from(monkeypatch, secret_file, words, variable, secret):
    monkeypatch.setenv("NSQ_AUTH_SECRET", variable)
    options = parse(*[word.format(secret_file) for word in words])
    assert secret_of(options) == secret


def test_a_destination_gets_no_secret_that_is_not_meant_for_it(monkeypatch, tmp_path, secret_file):
    monkeypatch.setenv("NSQ_AUTH_SECRET", "of-environment")
    options = parse_tool(RelayOptions, [], "nsq_tool", "Relays.")
    assert (secret_of(options), options.producer_opt) == ("of-environment", [])
    words = [f"--destination-auth-secret-file={secret_file}"]
    options = parse_tool(RelayOptions, words, "nsq_tool", "Relays.")
    assert secret_of(options) == "of-environment"
    assert client_config("nsq_tool", options.producer_opt).auth_secret == "s,3 cret"


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, "no such file or directory"), (b"\n", "has to hold a secret"), (b"\xff", "is no text")],
)
def test_a_file_without_a_secret(tmp_path, content, text):
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OptionsError, match=text) as refused:
        parse(f"--auth-secret-file={path}")
    assert re.match(rf"--auth-secret-file: (?:open )?{path}\b", str(refused.value))
    assert "\n" not in str(refused.value)
