"""Command line, config file and Go's notation: refused by OptionsError in one line, or settings that validate."""

import contextlib
import io
import re
from fractions import Fraction

from fuzz.common import empty_folder, guarded
from nsqfast.errors import OptionsError
from nsqfast.net.addresses import parse_address
from nsqfast.nsqd.options import Options, parse, validate
from nsqfast.program.options import declared
from nsqfast.wire.gotext import format_duration, parse_duration_ns, parse_int

UNIT_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9}
UNIT_NS |= {"m": 60 * 10**9, "h": 3600 * 10**9}
DURATION = re.compile(r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+", re.ASCII)
PART = re.compile(r"(\d*(?:\.\d*)?)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
WORDS = [f"\0--{item.flag}=".encode() for item in declared(Options)]
WORDS += [f"\n{item.key} = ".encode() for item in declared(Options) if item.key]
WORDS += [b"true", b'"1m30s"', b"1h", b"0x_1f", b"[0.99, 1]", b'""', "µs".encode(), b"tcp-https"]


def seeds():
    return [
        b'\x00log_level = "debug"\nmax_msg_size = 0x10\nmsg_timeout = "1m"\ndeflate = 0\n',
        b'\x00e2e_processing_latency_percentiles = [0.99, "1"]\nnsqlookupd_tcp_addresses = "a,b"\n',
        b"\x00tls_required = 1\nid = 1979-05-27\n",
        b"\x01--mem-queue-size=5\0-statsd-interval\x001m\0--verbose\0--data-path\0/tmp",
        b"\x01--e2e-processing-latency-percentile=0.5,0.99\0--tls-required=tcp-https",
        b"\x021m30.5s",
        b"\x02-0x1_f",
        b"\x02[::1]:4150",
    ]


def check_options(words):
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        try:
            options = parse(words)
            validate(options)
        except (OptionsError, SystemExit):
            return
    assert 0 <= options.node_id < 1024
    assert isinstance(options.max_msg_size, int)
    assert isinstance(options.tcp_address, str)
    assert all(0 < quantile <= 1 for quantile in options.e2e_processing_latency_percentiles)


def check_text(text):
    """Numbers and durations against a definition of each, printed ones read back."""
    expected = None
    if DURATION.fullmatch(text) and text.lstrip("+-") != "":
        # Each part is cut to whole nanoseconds by itself.
        total = sum(int(Fraction(number) * UNIT_NS[unit]) for number, unit in PART.findall(text))
        expected = None if total > 2**63 - 1 else -total if text[0] == "-" else total
    elif text in ("0", "+0", "-0"):
        expected = 0
    try:
        got = parse_duration_ns(text)
    except ValueError:
        got = None
    assert got == expected, (text, got, expected)
    if got is not None:
        assert parse_duration_ns(format_duration(got)) == got
    try:
        number = parse_int(text)
    except ValueError:
        number = None
    assert number == read_int(text), (text, number)
    parse_address(text)


def read_int(text):
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or digits[:1] in ("", "+", "-", "_") or digits != digits.strip():
        return None
    if re.fullmatch(r"0_?[0-7_]+", digits):
        digits = "0o" + digits[1:]
    try:
        number = int(digits, 0)
    except ValueError:
        return None
    number = -number if text[0] == "-" else number
    return number if -(2**63) <= number < 2**63 else None


@guarded
def check(data):
    kind, data = (data[0] % 3, data[1:]) if data else (2, b"")
    if kind == 0:
        path = empty_folder("options") / "nsqd.cfg"
        path.write_bytes(data)
        check_options([f"--config={path}"])
    elif kind == 1:
        words = [word.decode("utf-8", "surrogateescape") for word in data.split(b"\0")]
        # What another file says is not for this run to read.
        if not any("config" in word for word in words):
            check_options(words)
    elif len(data) < 200:
        check_text(data.decode("utf-8", "replace"))
