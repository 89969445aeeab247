"""Flags, config file, help: nsqd's syntax, precedence and refusals, word for word where scripts read them."""

import importlib
import re
import textwrap

import pytest

from nsqfast import __version__
from nsqfast.dev.manual import list_settings
from nsqfast.dev.manual_facts import FACTS
from nsqfast.errors import OptionsError
from nsqfast.nsqd.options import Options, default_node_id, expand_statsd_prefix, parse, validate
from nsqfast.program.command_line import split_flags
from nsqfast.program.config_file import UnknownKeysError
from nsqfast.program.options import FlagError, PlainError, by_key, declared
from nsqfast.wire.gotext import format_duration, parse_bool, parse_duration_ns, parse_int, quote

S = 1_000_000_000


def first_line(error):
    return str(error.value).splitlines()[0]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-5", -5),
        ("+5", 5),
        ("1_0", 10),
        ("010", 8),
        ("0o17", 15),
        ("0x1F", 31),
        ("0x_1f", 31),
        ("0b101", 5),
        ("-0x10", -16),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_int(text, number):
    assert parse_int(text) == number


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "1e3", "1.0", "08", "_1", "1_", "1__0", "0x", "abc", "--1", "٣"]
)
def test_int_refused(text):
    with pytest.raises(ValueError, match=r"^parse error$"):
        parse_int(text)


@pytest.mark.parametrize("text", ["9223372036854775808", "-0x8000000000000001"])
def test_int_out_of_range(text):
    with pytest.raises(ValueError, match=r"^value out of range$"):
        parse_int(text)


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("0", 0),
        ("-0", 0),
        ("1m30s", 90 * S),
        ("250ms", 250_000_000),
        ("1.5h", 5400 * S),
        ("-1.5s", -3 * S // 2),
        ("+.5s", S // 2),
        ("1.s", S),
        ("3us", 3000),
        ("3µs", 3000),
        ("3μs", 3000),
        ("7ns", 7),
        ("1s1s", 2 * S),
    ],
)
def test_duration(text, duration_ns):
    assert parse_duration_ns(text) == duration_ns


@pytest.mark.parametrize(
    "text", ["", "-", "60", "s", ".s", "1x", "1s ", "1 s", "1S", "9999999999h", "00"]
)
def test_duration_refused(text):
    with pytest.raises(ValueError, match=r"^parse error$"):
        parse_duration_ns(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0", "0s"),
        ("60s", "1m0s"),
        ("15m", "15m0s"),
        ("1h", "1h0m0s"),
        ("25ms", "25ms"),
        ("1500us", "1.5ms"),
        ("1.5s", "1.5s"),
        ("7ns", "7ns"),
        ("-90s", "-1m30s"),
    ],
)
def test_duration_shown(text, shown):
    assert format_duration(parse_duration_ns(text)) == shown


def test_bool():
    for text in ("1", "t", "T", "TRUE", "true", "True"):
        assert parse_bool(text) is True
    for text in ("0", "f", "F", "FALSE", "false", "False"):
        assert parse_bool(text) is False
    for text in ("", "yes", "tRUE", "2"):
        with pytest.raises(ValueError, match=r"parse error"):
            parse_bool(text)


def test_quote():
    assert quote('a"b\\c\n') == r'"a\"b\\c\n"'


def test_defaults_are_those_of_nsqd():
    options = parse([])
    assert options.tcp_address == "0.0.0.0:4150"
    assert options.mem_queue_size == 10000
    assert options.msg_timeout_ns == 60 * S
    assert options.min_output_buffer_timeout_ns == 25_000_000
    assert options.nsqlookupd_tcp_addresses == []
    assert options.deflate
    assert options.node_id == default_node_id()
    assert 0 <= options.node_id < 1024
    assert options.log_level == 2
    assert options.tls_min_version == 0x303  # nsqd's is TLS 1.0
    validate(options)


@pytest.mark.parametrize(
    "argv",
    [
        ["-mem-queue-size", "5"],
        ["--mem-queue-size=5"],
        ["--mem-queue-size=1", "-mem-queue-size=5"],
        ["--mem-queue-size=5", "--"],
    ],
)
def test_spellings(argv):
    assert parse(argv).mem_queue_size == 5


def test_a_boolean_takes_a_value_only_with_an_equals_sign():
    options = parse(["--deflate=false", "--snappy", "--node-id=9"])
    assert (options.deflate, options.snappy, options.node_id) == (False, True, 9)


@pytest.mark.parametrize(
    ("argv", "word", "hint"),
    [
        (["word", "--mem-queue-size=6"], "word", "everything is a flag or its value"),
        (["--", "--nope"], "--nope", "everything is a flag or its value"),
        (["-"], "-", "everything is a flag or its value"),
        (["--node-id", "7", "true"], "true", "everything is a flag or its value"),
        (["--snappy", "false", "--node-id=9"], "false", "write --snappy=false"),
        (["--worker-id", "7"], "7", "everything is a flag or its value"),
    ],
)
def test_words_are_refused(argv, word, hint):
    """Go ignores them, and every flag after them."""
    with pytest.raises(FlagError) as error:
        parse(argv)
    assert str(error.value) == f'unexpected word "{word}": {hint}\nsee nsqfast-nsqd --help'


def test_lists_append_and_quantiles_sort():
    options = parse(
        [
            "--lookupd-tcp-address=a:1",
            "-lookupd-tcp-address",
            "b:2",
            "--e2e-processing-latency-percentile=0.5,0.99",
            "--e2e-processing-latency-percentile=0.75",
        ]
    )
    assert options.nsqlookupd_tcp_addresses == ["a:1", "b:2"]
    assert options.e2e_processing_latency_percentiles == [0.99, 0.75, 0.5]
    assert parse([]).nsqlookupd_tcp_addresses == []


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--nope"], "flag provided but not defined: -nope"),
        (["---x"], "bad flag syntax: ---x"),
        (["--=x"], "bad flag syntax: --=x"),
        (["--mem-queue-size"], "flag needs an argument: -mem-queue-size"),
        (["--max-rdy-count=abc"], 'invalid value "abc" for flag -max-rdy-count: parse error'),
        (["--max-rdy-count=1e3"], 'invalid value "1e3" for flag -max-rdy-count: parse error'),
        (
            ["--msg-timeout", "60"],
            'invalid value "60" for flag -msg-timeout: parse error (write --msg-timeout=60s)',
        ),
        (["--worker-id=5"], 'invalid boolean value "5" for -worker-id: parse error'),
        (
            ["--durable=on"],
            'invalid value "on" for flag -durable: one of off, interval, always',
        ),
        (
            ["--log-format=xml"],
            'invalid value "xml" for flag -log-format: invalid log format: xml (text, json)',
        ),
    ],
)
def test_flag_errors(argv, line):
    with pytest.raises(FlagError) as error:
        parse(argv)
    assert str(error.value) == f"{line}\nsee nsqfast-nsqd --help"


DURATIONS = [
    (name, item)
    for name in FACTS
    for settings in list_settings(name)
    for item in settings.options
    if item.kind.hint == "duration" and not name.endswith("bench")  # where a bare number is valid
]


@pytest.mark.parametrize(
    ("program", "item"), DURATIONS, ids=lambda each: getattr(each, "flag", each)
)
def test_a_duration_says_what_to_write(program, item):
    for text, meant in (
        ("60", "60s"),
        ("-1.5", "-1.5s"),
        ("1day", "1m30s"),
        ("9999999999h", "1m30s"),
    ):
        with pytest.raises(FlagError) as error:
            split_flags([item], [f"--{item.flag}={text}"])
        assert str(error.value).endswith(f" --{item.flag}={meant})")


@pytest.mark.parametrize(
    ("flag", "meant"),
    [("--mem-queue-sise=5", "--mem-queue-size"), ("--tcp-adress=:1", "--tcp-address")],
)
def test_a_flag_that_is_nearly_one(flag, meant):
    with pytest.raises(FlagError) as error:
        parse([flag])
    assert first_line(error).endswith(f" (did you mean {meant}?)")


@pytest.mark.parametrize("word", ["warning", "trace", ""])
def test_log_level_words(word):
    assert parse(["--log-level=WARN"]).log_level == 3
    with pytest.raises(FlagError):
        parse([f"--log-level={word}"])


def test_words_of_tls():
    assert parse(["--tls-required"]).tls_required == 2
    assert parse(["--tls-required=TCP-HTTPS"]).tls_required == 1
    assert parse(["--tls-min-version=TLS1.2"]).tls_min_version == 0x303
    with pytest.raises(FlagError):
        parse(["--tls-min-version=ssl3.0"])


def test_bad_quantile():
    with pytest.raises(PlainError, match=r"^Could not parse: abc$"):
        parse(["--e2e-processing-latency-percentile=abc"])


def test_help_and_version(capsys):
    for word in ("--help", "-h"):
        with pytest.raises(SystemExit) as left:
            parse([word, "--nope"])
        assert left.value.code == 0
        printed = capsys.readouterr()
        assert printed.out.startswith("Usage: nsqfast-nsqd [flags]\n")
        assert "\n  --tcp-address string  " in printed.out
        assert '(default "0.0.0.0:4150")' in printed.out
        assert printed.err == ""
    with pytest.raises(SystemExit) as left:
        parse(["--version"])
    assert left.value.code == 0
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"nsqd v1\.3\.0 \(built w/python3\.\S+\)", first)
    assert re.fullmatch(rf"nsqfast {re.escape(__version__)} \(\w+ 3\.\S+, \w+ \w+\)", second)


def test_every_flag_of_nsqd_is_there_and_has_help():
    flags = {item.flag for item in declared(Options)}
    assert {
        "lookupd-tcp-address",
        "e2e-processing-latency-percentile",
        "node-id",
        "sync-every",
    } <= flags
    ours = [
        flag
        for flag in flags
        if flag.startswith(
            ("lookupd-tls", "metrics-", "max-connections", "max-memory", "max-topics")
        )
        or flag
        in (
            "allowed-host",
            "check",
            "commit-log-size",
            "durable",
            "durable-interval",
            "http-admin-address",
            "http-drain",
            "max-auth-failures",
            "max-channels-per-topic",
            "max-defer",
            "min-free-disk",
            "policy-file",
            "registration-secret-file",
        )
    ]
    assert len(flags) - len(ours) == 57
    assert all(item.help for item in declared(Options))
    keys = by_key(Options)
    assert keys["id"].attribute == "node_id"
    assert keys["sync_timeout"].attribute == "sync_timeout_ns"
    assert "verbose" not in keys


@pytest.fixture
def config(tmp_path):
    def read(text, *flags):
        path = tmp_path / "nsqd.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return parse([f"--config={path}", *flags])

    return read


def test_flag_beats_config_beats_default(config):
    assert config("id = 7").node_id == 7
    assert config("id = 7", "--node-id=6").node_id == 6
    # Also when the flag says what is the default anyway.
    assert config("mem_queue_size = 1", "--mem-queue-size=10000").mem_queue_size == 10000
    assert config(
        'nsqlookupd_tcp_addresses = ["a"]', "--lookupd-tcp-address=b"
    ).nsqlookupd_tcp_addresses == ["b"]


@pytest.mark.parametrize(
    ("text", "attribute", "value"),
    [
        ('mem_queue_size = "12"', "mem_queue_size", 12),
        ("msg_timeout = 1500", "msg_timeout_ns", 3 * S // 2),
        ('msg_timeout = "1m"', "msg_timeout_ns", 60 * S),
        ("deflate = false", "deflate", False),
        ('deflate = "0"', "deflate", False),
        ("deflate = 0", "deflate", False),
        ("deflate = 1", "deflate", True),
        ('auth_http_addresses = "a:1, b:2"', "auth_http_addresses", ["a:1", "b:2"]),
        ('auth_http_addresses = ["a,b"]', "auth_http_addresses", ["a,b"]),
        (
            "e2e_processing_latency_percentiles = [0.5, 0.9]",
            "e2e_processing_latency_percentiles",
            [0.5, 0.9],
        ),
        ("e2e_processing_latency_percentiles = [1]", "e2e_processing_latency_percentiles", [1.0]),
        (
            'e2e_processing_latency_percentiles = "0.5,0.9"',
            "e2e_processing_latency_percentiles",
            [0.5, 0.9],
        ),
        ("tls_required = true", "tls_required", 2),
        ('tls_required = "tcp-https"', "tls_required", 1),
        ("tls_required = 0", "tls_required", 0),
        ("tls_required = 1", "tls_required", 2),
        ('tls_min_version = ""', "tls_min_version", 0x303),
        ('log_level = "debug"', "log_level", 1),
        ('log_format = "json"', "log_format", 1),
        ('durable = "interval"', "durable", "interval"),
        ('durable_interval = "200ms"', "durable_interval_ns", S // 5),
        ("commit_log_size = 16777216", "commit_log_size", 16 << 20),
    ],
)
def test_config_values(config, text, attribute, value):
    assert getattr(config(text), attribute) == value


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("id = 7.5", "id is 7.5 (P), but takes a whole number of 64 bits: write id = N"),
        ("deflate = 1.0", "deflate is 1.0 (P), but takes true or false: write deflate = true"),
        (
            'msg_timeout = "60"',
            'msg_timeout is "60" (P), but takes a duration with its unit: write msg_timeout = "60s"',
        ),
        (
            "msg_timeout = 1.5",
            'is 1.5 (P), but takes a duration with its unit: write msg_timeout = "1.5s"',
        ),
        ('msg_timeout = "x"', 'takes a duration with its unit: write msg_timeout = "1m0s"'),
        ("tcp_address = 5", 'tcp_address is 5 (P), but takes a text: write tcp_address = "5"'),
        (
            "auth_http_addresses = [1]",
            'is [1] (P), but takes a list such as ["text", "text"]: write auth_http_addresses = ["1"]',
        ),
        (
            "e2e_processing_latency_percentiles = [true]",
            "but takes a list such as [0.5, 0.99]: write",
        ),
        (
            'mem_queue_size = "0x10"',
            'is "0x10" (P), but takes a whole number of 64 bits: write mem_queue_size = 10000',
        ),
        (
            "max_memory = 1979-05-27",
            'max_memory is "1979-05-27" (P), but takes a whole number of 64 bits',
        ),
        (
            'log_level = "warning"',
            'takes one of "debug", "info", "warn", "error", "fatal": write log_level = "info"',
        ),
        ("log_level = 1", "log_level is 1 (P), but takes one of"),
        (
            "durable = true",
            'takes one of "off", "interval", "always": write durable = "off"',
        ),
        (
            'tls_required = "x"',
            'is "x" (P), but takes true, false or "tcp-https": write tls_required = "false"',
        ),
        ('tls_min_version = "ssl3.0"', 'is "ssl3.0" (P), but takes one of "tls1.0"'),
    ],
)
def test_config_values_refused(config, tmp_path, text, line):
    with pytest.raises(OptionsError) as error:
        config(f"# a comment\n\n  {text}")
    begin, said = f"failed to load config file {tmp_path}/nsqd.toml - ", str(error.value)
    assert said.startswith(begin)
    assert line.replace("(P)", "(at line 3, column 3)").replace(
        "= N", f"= {default_node_id()}"
    ) in said.removeprefix(begin)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "tcp_address = 127.0.0.1:4150",
            ': write tcp_address = "127.0.0.1:4150"',
        ),
        ("msg_timeout: 60s  # a minute", ': write msg_timeout = "60s"'),
        ('data_path = "/var/lib', ': write data_path = "/var/lib"'),
        ("deflate = True", "(at line 2, column 11): write deflate = true"),
        (
            "sync_every =",
            ": a line is a key, an equals sign and a value; a text is in quotes, as in key = ",
        ),
        (
            "msg_timeout = " + 80 * "x",
            ": a line is a key, an equals sign and a value; a text is in quotes, as in key = ",
        ),
        ("id = 4", ": id is there twice, leave one of them"),
        (b"data_path = '\xe4'", "not a text in UTF-8 (at line 2): save it as one"),
    ],
)
def test_what_is_no_toml(config, tmp_path, text, line):
    with pytest.raises(OptionsError) as error:
        config(b"id = 3\n" + (text if isinstance(text, bytes) else text.encode()))
    assert "(at line 2" in str(error.value)
    assert str(error.value).startswith(f"failed to load config file {tmp_path}/nsqd.toml - ")
    assert line in str(error.value)


@pytest.mark.parametrize(
    ("key", "end"),
    [
        ("mem_queue_sise", ", did you mean mem_queue_size?"),
        ("mem-queue-size", ", did you mean mem_queue_size?"),
        ("lookupd_tcp_address", ", did you mean nsqlookupd_tcp_addresses?"),
        ("node_id", ", did you mean id?"),
        ("xyzzy", ""),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest(config, key, end):
    with pytest.raises(UnknownKeysError) as error:
        config(f"{key} = 1")
    (line,) = error.value.lines
    assert line.endswith(f'nsqd.toml - unknown key "{key}" (at line 1, column 1){end}')


def test_all_unknown_keys_are_named(config):
    with pytest.raises(UnknownKeysError) as error:
        config('sync_evry = 1\nid = 5\n[tables]\nid = 5\n["a\\nb"]\n')
    assert [line.partition(" unknown key ")[2] for line in error.value.lines] == [
        '"a\\nb"',
        '"sync_evry" (at line 1, column 1), did you mean sync_every?',
        '"tables" (at line 3, column 2)',
    ]


# What contrib/*.cfg.example of NSQ 0.2 to 1.3.0 set, with values that they may have.
GO_KEYS = {
    "nsqd": """
        verbose = false
        worker_id = 5
        max_message_size = 1024768
        log_level = "info"
        id = 150
        tcp_address = "0.0.0.0:4150"
        http_address = "0.0.0.0:4151"
        https_address = "0.0.0.0:4152"
        broadcast_address = "here"
        nsqlookupd_tcp_addresses = ["127.0.0.1:4160"]
        http_client_connect_timeout = "2s"
        http_client_request_timeout = "5s"
        data_path = "/var/lib/nsq"
        mem_queue_size = 10000
        max_bytes_per_file = 104857600
        sync_every = 2500
        sync_timeout = "2s"
        msg_timeout = "60s"
        max_msg_timeout = "15m"
        max_msg_size = 1024768
        max_req_timeout = "1h"
        max_body_size = 5123840
        max_heartbeat_interval = "60s"
        max_rdy_count = 2500
        max_output_buffer_size = 65536
        max_output_buffer_timeout = "1s"
        statsd_address = "127.0.0.1:8125"
        statsd_prefix = "nsq.%s"
        statsd_interval = "60s"
        statsd_mem_stats = true
        statsd_udp_packet_size = 508
        e2e_processing_latency_percentiles = [1.0, 0.99, 0.95]
        e2e_processing_latency_window_time = "10m"
        tls_cert = ""
        tls_key = ""
        tls_client_auth_policy = "require-verify"
        tls_root_ca_file = ""
        tls_required = false
        tls_min_version = ""
        deflate = true
        max_deflate_level = 6
        snappy = true
    """,
    "nsqlookupd": """
        verbose = false
        log_level = "info"
        tcp_address = "0.0.0.0:4160"
        http_address = "0.0.0.0:4161"
        broadcast_address = ""
        inactive_producer_timeout = "300s"
        tombstone_lifetime = "45s"
    """,
    "nsqadmin": """
        template_dir = ""
        use_statsd_prefixes = true
        log_level = "info"
        log_prefix = ""
        acl_http_header = "X-Forwarded-User"
        admin_users = ["admin"]
        allow_config_from_cidr = "127.0.0.1/8"
        base_path = "/"
        http_client_connect_timeout = "2s"
        http_client_request_timeout = "5s"
        http_client_tls_cert = ""
        http_client_tls_insecure_skip_verify = false
        http_client_tls_key = ""
        http_client_tls_root_ca_file = ""
        http_address = "0.0.0.0:4171"
        graphite_url = ""
        proxy_graphite = false
        statsd_prefix = "nsq.%s"
        statsd_counter_format = "stats.counters.%s.count"
        statsd_gauge_format = "stats.gauges.%s"
        statsd_interval = "60s"
        notification_http_endpoint = ""
        nsqlookupd_http_addresses = ["127.0.0.1:4161"]
        nsqd_http_addresses = ["127.0.0.1:4151"]
    """,
}


@pytest.mark.parametrize("program", GO_KEYS)
def test_the_keys_of_a_file_that_works_with_go_are_known(program, tmp_path):
    path = tmp_path / "go.cfg"
    path.write_text(textwrap.dedent(GO_KEYS[program]))
    module = importlib.import_module(f"nsqfast.{program}.options")
    options = module.parse([f"--config={path}"])
    assert options.log_level == 2


def test_config_file_missing_or_broken(config):
    with pytest.raises(
        OptionsError,
        match=r"^failed to load config file /nope - open /nope: no such file or directory$",
    ):
        parse(["--config=/nope"])
    with pytest.raises(OptionsError, match=r"^failed to load config file .*nsqd.toml - "):
        config("id = ")
    for text in ("a = " + "[" * 5000, "a = " + "{a=" * 5000):
        with pytest.raises(OptionsError, match="nested too deeply$"):
            config(text)


@pytest.mark.parametrize(
    "text",
    [
        "id = 9223372036854775808",
        "id = 0x" + "f" * 5000,
        "tls_required = 0x" + "f" * 5000,
        "log_level = {a = [0x" + "f" * 5000 + "]}",
        "e2e_processing_latency_percentiles = [0x" + "f" * 5000 + "]",
    ],
    ids=range(5),
)
def test_config_integers_of_more_than_64_bits(config, text):
    """Python reads them, and prints no traceback over those that it refuses to print."""
    with pytest.raises(OptionsError, match=": an integer is out of range for int64$"):
        config(text)


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--max-deflate-level=10", "--max-deflate-level must be [1,9]"),
        ("--node-id=1024", "--node-id must be [0,1024)"),
        ("--auth-http-request-method=put", "--auth-http-request-method must be post or get"),
        (
            "--e2e-processing-latency-percentile=1.5",
            "invalid E2E processing latency percentile: 1.5",
        ),
        (
            "--e2e-processing-latency-percentile=nan",
            "invalid E2E processing latency percentile: nan",
        ),
        ("--mem-queue-size=-1", "--mem-queue-size must be at least 0, not -1"),
        (
            "--queue-scan-worker-pool-max=0",
            "--queue-scan-worker-pool-max must be at least 1, not 0",
        ),
        ("--sync-timeout=0", "--sync-timeout must be longer than 0, not 0s"),
        ("--durable-interval=0", "--durable-interval must be longer than 0, not 0s"),
        (
            "--commit-log-size=16777215",
            "--commit-log-size must be at least 16777216, not 16777215",
        ),
        (
            "--commit-log-size=4294967297",
            "--commit-log-size must be at most 4294967296, not 4294967297",
        ),
        ("--output-buffer-timeout=-1s", "--output-buffer-timeout must be longer than 0, not -1s"),
        ("--statsd-interval=1s", "--statsd-interval must be longer than 1s, not 1s"),
        (
            "--e2e-processing-latency-window-time=0",
            "--e2e-processing-latency-window-time must be longer than 0, not 0s",
        ),
        ("--tls-required", "cannot require TLS client connections without TLS key and cert"),
        (
            "--http-auth-required",
            "--http-auth-required needs an auth server: give --auth-http-address",
        ),
    ],
)
def test_refused_at_start(flag, text):
    with pytest.raises(OptionsError) as error:
        validate(parse([flag]))
    assert str(error.value) == text


@pytest.mark.parametrize(
    ("flags", "most"),
    [
        ([], (1 << 30) - 30),
        (["--max-memory=100000000"], 100_000_000),
        (["--max-memory=2000000000"], (1 << 30) - 30),
    ],
    ids=["frame", "memory", "frame-in-memory"],
)
def test_the_largest_message_that_may_be_allowed(flags, most):
    validate(parse([*flags, f"--max-msg-size={most}"]))
    with pytest.raises(OptionsError) as error:
        validate(parse([*flags, f"--max-msg-size={most + 1}"]))
    assert str(error.value) == f"--max-msg-size must be at most {most}, not {most + 1}"


@pytest.mark.parametrize("mode", ["interval", "always"])
def test_the_largest_body_that_a_commit_log_may_have_to_take(mode):
    flags = [f"--durable={mode}", "--max-body-size=10000000"]
    validate(parse([*flags, "--commit-log-size=60000000"]))
    with pytest.raises(OptionsError) as error:
        validate(parse([*flags, "--commit-log-size=59999999"]))
    assert str(error.value) == (
        "--commit-log-size must be at least 6 times --max-body-size, 60000000, not 59999999"
    )


def test_a_body_may_be_large_without_a_commit_log():
    validate(parse(["--max-body-size=1000000000"]))


def test_statsd_prefix():
    assert expand_statsd_prefix("nsq.%s", "host.example.com", 4151) == "nsq.host_example_com_4151."
    assert expand_statsd_prefix("", "h", 1) == ""
    assert expand_statsd_prefix("a.", "h", 1) == "a."
