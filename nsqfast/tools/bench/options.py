"""The settings of nsqfast-bench, and the work of each worker process that follows from them.

One set of fields, of which every mode uses a part. Names and defaults are those of NSQ's bench_writer and bench_reader
where they have the flag.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from nsqfast.errors import OptionsError
from nsqfast.net.addresses import PORT_MAX, Inet, parse_address
from nsqfast.program.command_line import HelpRequested, read_flags
from nsqfast.program.options import BOOL, INT, STRING, Kind, Option, declared, defaults, option
from nsqfast.program.stdout import print_text
from nsqfast.program.usage import usage
from nsqfast.version import __version__
from nsqfast.wire.gotext import format_duration, parse_duration_ns
from nsqfast.wire.names import EPHEMERAL, describe_invalid, is_ephemeral, is_valid_name
from nsqfast.wire.protocol import MPUB_SIZE_MAX

PROGRAM = "nsqfast-bench"
NS_PER_MS, NS_PER_S = 1_000_000, 1_000_000_000

# A deadline is a 64-bit sum, and nobody measures for longer than a year.
RUNFOR_NS_MAX = 8760 * 3600 * NS_PER_S
# Counts of all workers are added up in 64 bits, together with the stop mark of crew.py.
COUNT_MAX = 10**15
CHANNEL_COUNT_MAX = 1000
IN_AIR_MAX = 1_000_000
RATE_MAX = 1_000_000_000
# 160 MB of room for samples; more of them do not improve percentiles.
SAMPLE_COUNT_MAX = 10_000_000
# A paced message carries the moment that it was meant for.
STAMP_SIZE = 8


def _span(unit: str) -> Kind:
    """A duration as Go writes it, or a bare number of units."""

    def parse(text: str) -> int:
        return parse_duration_ns(text if text[-1:].isalpha() else text + unit)

    return Kind("time.Duration", "duration", parse, parse, show=format_duration)


SECONDS = _span("s")
MILLISECONDS = _span("ms")


@dataclass(slots=True)
class Options:
    """All flags; durations are in nanoseconds, with the suffix `_ns`."""

    # fmt: off
    nsqd_tcp_address: str = option(STRING, "127.0.0.1:4150", "TCP <addr>:<port> of the broker", group="Broker")
    topic: str = option(STRING, "", "topic to publish to or to consume")
    topics: int = option(INT, 1, "topics to publish to, in turn: --topic, and its name followed by 2, 3 and so on")
    channel: str = option(STRING, "", "channel to consume")
    channels: int = option(INT, 1, "channels to consume: --channel, and its name followed by 2, 3 and so on")

    count: int = option(INT, 0, "messages after which it ends; 0 = only --runfor counts", group="Load")
    runfor_ns: int = option(
        SECONDS, 10 * NS_PER_S, "time after which it ends; a bare number is in seconds", flag="runfor")
    size: int = option(INT, 200, "size of a message in bytes; for sub it only serves to compute MB/s")
    rate: int = option(INT, 5000, "messages per second, over all connections")
    workers: int = option(INT, 1, "processes among which the connections are divided")

    connections: int = option(INT, 2, "connections that publish", group="Publishing")
    batch_size: int = option(INT, 200, "messages in a command: 1 = PUB, more = MPUB")
    in_air: int = option(INT, 1, "commands of a connection that may wait for their answers at a time")
    defer_ms: int = option(INT, -1, "publish by DPUB with this delay in ms; needs --batch-size=1; -1 = off")

    consumers: int = option(INT, 2, "connections that consume, for each channel", group="Consuming")
    rdy: int = option(INT, 2500, "RDY count of each consumer")
    requeue_ms: int = option(
        INT, -1, "requeue each message by REQ when it first arrives, with this delay in ms; -1 = off")

    output_buffer_size: int = option(
        INT, 0, "output buffer in bytes to ask the broker for; 0 = its default, -1 = none", group="Negotiation")
    output_buffer_timeout_ns: int = option(
        MILLISECONDS, 0, "output buffer timeout to ask for; a bare number is in ms; 0 = the broker's, -1 = none",
        flag="output-buffer-timeout")
    msg_timeout_ns: int = option(
        MILLISECONDS, 0, "message timeout to ask for; a bare number is in ms; 0 = the broker's", flag="msg-timeout")

    json: bool = option(BOOL, False, "print a JSON object instead of a table", group="Output")
    # fmt: on
    mode: str = ""

    @property
    def publishes(self) -> bool:
        """Whether some connections publish."""
        return self.mode != "sub"

    @property
    def consumes(self) -> bool:
        """Whether some connections consume."""
        return self.mode != "pub"

    @property
    def intended(self) -> int:
        """Messages that `latency` is to send: --count, unless --runfor ends first."""
        in_time = self.rate * self.runfor_ns // NS_PER_S
        return min(self.count, in_time) if self.count else in_time

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the broker; OptionsError if the flag is invalid."""
        parsed = parse_address(self.nsqd_tcp_address)
        if isinstance(parsed, Inet) and parsed.port.isascii() and parsed.port.isdigit():
            port = int(parsed.port)
            if 1 <= port <= PORT_MAX:
                return parsed.host or "127.0.0.1", port
        raise OptionsError(
            f"--nsqd-tcp-address must be <addr>:<port>, not {self.nsqd_tcp_address!r}"
        )

    def topic_names(self) -> list[str]:
        """T, T2, T3, ...: connection i publishes to number i, and on from the first."""
        return _numbered(self.topic, self.topics)

    def channel_names(self) -> list[str]:
        """C, C2, C3, ..."""
        return _numbered(self.channel, self.channels)


def _numbered(name: str, count: int) -> list[str]:
    """The name, and with numbers behind it; a suffix #ephemeral stays at the end."""
    stem = name.removesuffix(EPHEMERAL)
    tail = EPHEMERAL if is_ephemeral(name) else ""
    return [name, *(f"{stem}{i}{tail}" for i in range(2, count + 1))]


_EVERYWHERE = (
    "topic size nsqd_tcp_address workers count runfor_ns json "
    "output_buffer_size output_buffer_timeout_ns msg_timeout_ns"
)
_PUBLISHING = "connections batch_size in_air defer_ms"
_CONSUMING = "channel consumers rdy requeue_ms"
_FIELDS = {
    "pub": f"{_EVERYWHERE} topics {_PUBLISHING}".split(),
    "sub": f"{_EVERYWHERE} {_CONSUMING}".split(),
    "pubsub": f"{_EVERYWHERE} {_PUBLISHING} {_CONSUMING} channels".split(),
    "latency": f"{_EVERYWHERE} connections channel consumers rdy rate".split(),
}
MODES = {
    "pub": "publish as fast as the broker takes it",
    "sub": "consume what a channel holds",
    "pubsub": "publish and consume at the same time",
    "latency": "publish at a fixed rate and time each message from its due moment to its arrival",
}
_ABOUTS = {mode: f"Load generator: {text}." for mode, text in MODES.items()}


def parse(argv: list[str]) -> Options:
    """Parse the words after the program's name; --help and --version print and exit by SystemExit."""
    mode, words = (argv[0], argv[1:]) if argv else ("", [])
    if mode.lstrip("-") in ("h", "help"):
        print_text(overview())
        raise SystemExit(0)
    if mode.lstrip("-") == "version":
        print_text(f"{PROGRAM} v{__version__}")
        raise SystemExit(0)
    if mode not in MODES:
        told = f"unknown mode {mode!r}" if mode else "no mode"
        raise OptionsError(f"{told}: the first word must be one of {', '.join(MODES)}")
    flags = [item for item in declared(Options) if item.attribute in _FIELDS[mode]]
    try:
        values = read_flags(flags, words)
    except HelpRequested:
        print_text(usage(flags, defaults(Options), f"{PROGRAM} {mode}", _ABOUTS[mode]))
        raise SystemExit(0) from None
    stray = next(_strays(flags, words), None)
    if stray is not None:
        raise OptionsError(f"unexpected word {stray!r}: what follows the mode must be flags")
    if mode == "latency":
        values["batch_size"] = 1
    return Options(mode=mode, **values)


def overview() -> str:
    """The help text of the program without a mode."""
    lines = [f"Usage: {PROGRAM} <mode> [flags]", "", "Loads or measures any nsqd.", "", "Modes:"]
    lines += [f"  {mode:<9} {text}" for mode, text in MODES.items()]
    return "\n".join([*lines, "", f"{PROGRAM} <mode> --help lists the flags of a mode."])


def _strays(flags: list[Option], words: list[str]) -> Iterator[str]:
    """Words that are neither flags nor their values: Go's syntax drops them, and all flags after them."""
    alone = {item.flag for item in flags if item.kind.is_bool}
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word in ("-", "--"):
            yield word
        elif "=" not in word and word.lstrip("-") not in alone:
            next(rest, None)


def validate(options: Options) -> None:
    """Raise OptionsError for settings that cannot run or would measure nothing."""
    _check_names(options)
    _check_counts(options)
    _check_times(options)
    if options.mode == "latency":
        _check_latency(options)
    if options.defer_ms >= 0 and options.batch_size != 1:
        raise OptionsError("--defer-ms needs --batch-size=1: NSQ has no MPUB with a delay")
    if options.batch_size > 1 and 4 + options.batch_size * (4 + options.size) > MPUB_SIZE_MAX:
        raise OptionsError("--size times --batch-size must be below 2 GiB: lower one of them")
    connections = (options.connections if options.publishes else 0) + (
        options.consumers * options.channels if options.consumes else 0
    )
    if options.workers > connections:
        raise OptionsError(
            f"--workers must be at most the number of connections ({connections}), not {options.workers}"
        )
    _ = options.address


def _check_names(options: Options) -> None:
    # One connection at least, whose absence has a line of its own.
    _check_range("topics", options.topics, 1, max(1, options.connections))
    wanted = {"topic": options.topic_names()}
    if options.consumes:
        _check_range("channels", options.channels, 1, CHANNEL_COUNT_MAX)
        wanted["channel"] = options.channel_names()
    for flag, names in wanted.items():
        if not names[0]:
            raise OptionsError(f"--{flag} is missing: name the {flag}, such as --{flag}=bench")
        for name in names:
            if not is_valid_name(name):
                raise OptionsError(describe_invalid(name, flag))


def _check_range(flag: str, number: int, least: int, most: int | None = None) -> None:
    if number < least:
        raise OptionsError(f"--{flag} must be at least {least}, not {number}")
    if most is not None and number > most:
        raise OptionsError(f"--{flag} must be at most {most}, not {number}")


def _check_counts(options: Options) -> None:
    least_size = STAMP_SIZE if options.mode == "latency" else 1
    _check_range("size", options.size, least_size, MPUB_SIZE_MAX)
    _check_range("batch-size", options.batch_size, 1, MPUB_SIZE_MAX)
    _check_range("in-air", options.in_air, 1, IN_AIR_MAX)
    _check_range("defer-ms", options.defer_ms, -1)
    _check_range("requeue-ms", options.requeue_ms, -1)
    _check_range("rdy", options.rdy, 1)
    _check_range("connections", options.connections, 1)
    _check_range("consumers", options.consumers, 1)
    _check_range("workers", options.workers, 1)
    _check_range("count", options.count, 0, COUNT_MAX)
    _check_range("rate", options.rate, 1, RATE_MAX)
    _check_range("output-buffer-size", options.output_buffer_size, -1)


def _check_times(options: Options) -> None:
    if not 0 < options.runfor_ns <= RUNFOR_NS_MAX:
        raise OptionsError(
            f"--runfor must be longer than 0 and at most {format_duration(RUNFOR_NS_MAX)}, "
            f"not {format_duration(options.runfor_ns)}"
        )
    for flag, asked_ns, special in (
        ("output-buffer-timeout", options.output_buffer_timeout_ns, (0, -NS_PER_MS)),
        ("msg-timeout", options.msg_timeout_ns, (0,)),
    ):
        if asked_ns < NS_PER_MS and asked_ns not in special:
            raise OptionsError(f"--{flag} must be at least 1ms, not {format_duration(asked_ns)}")


def _check_latency(options: Options) -> None:
    if options.workers != 1:
        raise OptionsError("--workers must be 1 for latency: one process keeps the timetable")
    if options.intended < 1:
        raise OptionsError("--rate times --runfor is less than one message: raise one of them")
    if options.intended > SAMPLE_COUNT_MAX:
        raise OptionsError(
            f"{options.intended} samples are too many: lower --rate, --runfor or --count "
            f"so that there are at most {SAMPLE_COUNT_MAX}"
        )


UNLIMITED = -1
# The target of a run without one: never reached, and far enough from the 64-bit limit for additions.
UNREACHABLE = 1 << 61

# How long `latency` waits for the last messages after sending them.
LAST_ARRIVAL_NS = NS_PER_S


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """One process: its share of the connections, and the common target."""

    index: int
    options: Options
    quotas: tuple[int, ...]  # commands of each publishing connection
    topics: tuple[str, ...]  # the topic of each of them
    channels: tuple[str, ...]  # the channel of each consuming connection
    publish_target: int
    finish_target: int
    runfor_ns: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole run, computed before any worker process starts."""

    options: Options
    workers: tuple[WorkerPlan, ...]

    @property
    def connections(self) -> int:
        """Connections that publish."""
        return sum(len(worker.quotas) for worker in self.workers)

    @property
    def consumers(self) -> int:
        """Connections that consume."""
        return sum(len(worker.channels) for worker in self.workers)

    @property
    def goal(self) -> int:
        """The number of messages (as counted by `messages_per_s`) that ends the run; 0 = only time ends it."""
        worker = self.workers[0]
        goal = worker.publish_target if self.options.mode == "pub" else worker.finish_target
        return 0 if goal == UNREACHABLE else goal


def make_plan(options: Options) -> Plan:
    """Distribute connections over workers in turn: first those that publish, then those that consume."""
    quotas = _quotas(options)
    names = options.topic_names()
    topics = [names[i % len(names)] for i in range(len(quotas))]
    channels = options.channel_names() * options.consumers if options.consumes else []
    worker_count = min(options.workers, len(quotas) + len(channels))
    publish_target, finish_target = _targets(options)
    # Continue with the consumers where the publishers ended, so that the workers differ by at most one connection.
    turned = [
        channels[(i - len(quotas)) % worker_count :: worker_count] for i in range(worker_count)
    ]
    return Plan(
        options,
        tuple(
            WorkerPlan(
                index=i,
                options=options,
                quotas=tuple(quotas[i::worker_count]),
                topics=tuple(topics[i::worker_count]),
                channels=tuple(turned[i]),
                publish_target=publish_target,
                finish_target=finish_target,
                runfor_ns=options.runfor_ns + (LAST_ARRIVAL_NS if options.mode == "latency" else 0),
            )
            for i in range(worker_count)
        ),
    )


def _command_count(options: Options) -> int:
    """Commands that carry --count messages; the last batch is a whole one too."""
    if options.mode == "latency":
        return options.intended
    return -(-options.count // options.batch_size)


def _quotas(options: Options) -> list[int]:
    """Commands per publishing connection; there are no more connections than commands."""
    if not options.publishes:
        return []
    if options.mode != "latency" and not options.count:
        return [UNLIMITED] * options.connections
    commands = _command_count(options)
    connections = min(options.connections, commands)
    share, extra = divmod(commands, connections)
    return [share + (i < extra) for i in range(connections)]


def _targets(options: Options) -> tuple[int, int]:
    """How many published and finished messages end the run; without a count, one of them is unreachable."""
    if options.mode == "latency":
        return options.intended, options.intended
    if not options.count:
        return UNREACHABLE, UNREACHABLE
    if options.mode == "sub":
        return 0, options.count
    published = _command_count(options) * options.batch_size
    return published, published * options.channels if options.consumes else 0


def publish_command(options: Options, topic: str) -> bytes:
    """The one command that a connection sends to this topic repeatedly."""
    body = bytes(options.size)
    to = topic.encode()
    if options.batch_size > 1:
        messages = (struct.pack(">I", len(body)) + body) * options.batch_size
        size, count = 4 + len(messages), options.batch_size
        return b"MPUB %b\n%b%b" % (to, struct.pack(">II", size, count), messages)
    delay = b" %d" % options.defer_ms if options.defer_ms >= 0 else b""
    name = b"DPUB" if delay else b"PUB"
    return b"%b %b%b\n%b%b" % (name, to, delay, struct.pack(">I", len(body)), body)


def identify_settings(options: Options, client_id: str) -> dict[str, object]:
    """The settings for IDENTIFY, in addition to those that the connection itself needs."""
    asked: dict[str, object] = {"client_id": client_id, "user_agent": "nsqfast-bench"}
    if options.output_buffer_size:
        asked["output_buffer_size"] = options.output_buffer_size
    if options.output_buffer_timeout_ns:
        asked["output_buffer_timeout"] = options.output_buffer_timeout_ns // NS_PER_MS
    if options.msg_timeout_ns:
        asked["msg_timeout"] = options.msg_timeout_ns // NS_PER_MS
    return asked
