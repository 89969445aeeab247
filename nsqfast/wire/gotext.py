"""Go's notation of numbers, durations, quoted text, system errors and addresses.

NSQ's flags, config files, log lines and error texts use it, and scripts written for NSQ rely on that.
"""

import os
import re
import socket

INT64_MAX = (1 << 63) - 1

_INT = re.compile(
    r"[+-]?(0[xX](_?[0-9a-fA-F])+|0[oO](_?[0-7])+|0[bB](_?[01])+|0(_?[0-7])*|[1-9](_?[0-9])*)"
)
_DURATION_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_UNIT_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_IPV4_MAPPED = bytes(10) + b"\xff\xff"  # how the 16 bytes of such an IPv6 address begin
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def parse_int(text: str) -> int:
    """A Go integer literal: decimal, 0x, 0o or a leading 0, 0b, with `_` between digits."""
    if not _INT.fullmatch(text):
        raise ValueError("parse error")
    sign = -1 if text[0] == "-" else 1
    digits = text.lstrip("+-").replace("_", "").lower()
    if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
        digits = "0o" + digits[1:]
    return in_int64(sign * int(digits, 0))


def in_int64(number: int) -> int:
    """Return the number; refuse it if it does not fit into a signed 64-bit integer."""
    if not -INT64_MAX - 1 <= number <= INT64_MAX:
        raise ValueError("value out of range")
    return number


def parse_bool(text: str) -> bool:
    """Parse one of the twelve spellings that Go knows."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("parse error")


def parse_duration_ns(text: str) -> int:
    """A Go duration such as `1m30s`, `250ms`, `-1.5h` or a bare `0`, in nanoseconds."""
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if unsigned == "0":
        return 0
    total_ns = 0
    position = 0
    while position < len(unsigned) or not unsigned:
        part = _DURATION_PART.match(unsigned, position)
        if part is None or not (part[1] or part[2]):
            raise ValueError("parse error")
        unit_ns = _UNIT_NS[part[3]]
        fraction = part[2] or "0"
        total_ns += int(part[1] or "0") * unit_ns + int(fraction) * unit_ns // 10 ** len(fraction)
        position = part.end()
    if total_ns > INT64_MAX:
        raise ValueError("parse error")
    return -total_ns if text[0] == "-" else total_ns


def format_duration(duration_ns: int) -> str:
    """Format a duration as Go prints it: 1h0m0s, 1m30s, 250ms, 0s."""
    sign, rest_ns = ("-", -duration_ns) if duration_ns < 0 else ("", duration_ns)
    if rest_ns < 1_000_000_000:
        for unit in ("ms", "µs", "ns"):
            if rest_ns >= _UNIT_NS[unit]:
                return f"{sign}{_decimal(rest_ns, _UNIT_NS[unit])}{unit}"
        return "0s"
    minutes, rest_ns = divmod(rest_ns, _UNIT_NS["m"])
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest_ns, _UNIT_NS['s'])}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else sign + text


def _decimal(number: int, unit: int) -> str:
    whole, rest = divmod(number, unit)
    return f"{whole}.{rest:0{len(str(unit)) - 1}d}".rstrip("0").rstrip(".") if rest else str(whole)


def quote(text: str) -> str:
    """The string in double quotes, as Go's %q shows ordinary text."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def os_error(error: OSError) -> str:
    """A system error's text in Go's words: `no such file or directory`, `address already in use`."""
    if error.errno is None or error.errno < 0:
        return str(error)
    text = os.strerror(error.errno)
    return text[:1].lower() + text[1:]


def join_host_port(host: str, port: int) -> str:
    """`10.0.0.1:4150`, `[::1]:4150`: as Go's net.JoinHostPort writes it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def format_host(host: str) -> str:
    """An IP address as Go prints it: IPv4 that came over an IPv6 socket (`::ffff:10.0.0.1`) is `10.0.0.1`."""
    if ":" not in host:
        return host
    try:
        packed = socket.inet_pton(socket.AF_INET6, host)
    except OSError:  # it names an interface, too: fe80::1%eth0
        return host
    is_mapped = packed.startswith(_IPV4_MAPPED)
    return socket.inet_ntop(socket.AF_INET, packed[len(_IPV4_MAPPED) :]) if is_mapped else host


def format_address(name: object) -> str:
    """One end of a connection, as the socket names it; `@` for a Unix socket, whose clients have no name."""
    if not isinstance(name, tuple):
        return "@"
    return join_host_port(format_host(name[0]), name[1])


def format_peer_host(name: object) -> str:
    """The same without its port; '' for a Unix socket."""
    return format_host(name[0]) if isinstance(name, tuple) else ""
