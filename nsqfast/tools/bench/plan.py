"""The work of each worker process, computed before any of them starts."""

import struct
from dataclasses import dataclass

from nsqfast.tools.bench.options import NS_PER_MS, NS_PER_S, Options

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
    channels: tuple[str, ...]  # the channel of each consuming connection
    publish_target: int
    finish_target: int
    runfor_ns: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole run."""

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


def publish_command(options: Options) -> bytes:
    """The one command that a connection sends repeatedly."""
    body = bytes(options.size)
    topic = options.topic.encode()
    if options.batch_size > 1:
        messages = (struct.pack(">I", len(body)) + body) * options.batch_size
        size, count = 4 + len(messages), options.batch_size
        return b"MPUB %b\n%b%b" % (topic, struct.pack(">II", size, count), messages)
    delay = b" %d" % options.defer_ms if options.defer_ms >= 0 else b""
    name = b"DPUB" if delay else b"PUB"
    return b"%b %b%b\n%b%b" % (name, topic, delay, struct.pack(">I", len(body)), body)


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
