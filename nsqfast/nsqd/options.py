"""Every setting of nsqd, with the names, defaults and meaning of nsqd 1.3.0, and the checks of their values."""

import socket
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import md5

from nsqfast.errors import OptionsError
from nsqfast.program import logs
from nsqfast.program.command_line import parse_options
from nsqfast.program.options import (
    BOOL,
    DURATION,
    FLOATS,
    INT,
    STRING,
    STRINGS,
    Kind,
    declared,
    one_of,
    option,
    words,
)
from nsqfast.version import nsq_line, own_line
from nsqfast.wire.gotext import format_duration, parse_bool

PROGRAM = "nsqd"
# Without effect in nsqd 1.3.0, and so here.
OLD_KEYS = ("verbose", "worker_id", "max_message_size")
ABOUT = "The broker: takes messages from producers, keeps them, and hands them to consumers."
NODE_ID_COUNT = 1024
VERSION_LINE = nsq_line(PROGRAM)
POLICIES_NAME = "policies.json"  # in the data folder
DEATHS_NAME = "deaths.sqlite"  # the same
REDRIVES_NAME = "redrives.json"  # the same
LOG_PREFIX = "[nsqd] "
# Memory comes in blocks of 1 MiB per message size; with less, few sizes would stay in memory.
MEMORY_MIN = 64 << 20
# A frame has at most 2^31 bytes for Go's clients and 1 GiB for ours; a message has 30 bytes around its body in it.
MESSAGE_SIZE_MAX = (1 << 30) - 30
# What an OK promises; with all but the first a commit log is written, whose largest size is that of four quarters.
DURABILITIES = ("off", "interval", "always")
COMMIT_LOG_SIZE_MIN, COMMIT_LOG_SIZE_MAX = 16 << 20, 4 << 30
# The body of one command has to fit into a quarter together with what the log adds to it.
COMMIT_LOG_BODIES = 6
# Ninety days.
DEFER_NS_MAX = 2160 * 3600 * 1_000_000_000
# A hundred years. Times are 64 bits of nanoseconds, and twice the longest heartbeat before now has to fit, too.
DURATION_NS_MAX = 876_600 * 3600 * 1_000_000_000

TLS_REQUIRED_OFF, TLS_REQUIRED_EXCEPT_HTTP, TLS_REQUIRED = 0, 1, 2
# The protocol numbers of TLS 1.0 to 1.3; an empty word means the default (NSQ's is 1.0, which is no longer safe).
TLS_VERSIONS = {"tls1.0": 0x301, "tls1.1": 0x302, "tls1.2": 0x303, "tls1.3": 0x304, "": 0x303}


def _parse_tls_required(text: str) -> int:
    if text.lower() == "tcp-https":
        return TLS_REQUIRED_EXCEPT_HTTP
    try:
        return TLS_REQUIRED if parse_bool(text.lower()) else TLS_REQUIRED_OFF
    except ValueError:
        raise ValueError(f'strconv.ParseBool: parsing "{text.lower()}": invalid syntax') from None


def _coerce_tls_required(value: object) -> int:
    if isinstance(value, bool | int):
        return _parse_tls_required(str(value).lower())
    return _parse_tls_required(value if isinstance(value, str) else "")


REQUIREMENT = Kind(
    "word",
    "",
    _parse_tls_required,
    _coerce_tls_required,
    show=lambda value: ("false", "tcp-https", "true")[value],
    is_bool=True,
    is_word=True,
    wanted='true, false or "tcp-https"',
)
TLS_VERSION = words(TLS_VERSIONS, lambda text: f'unknown tlsVersionOption "{text}"')


def default_node_id() -> int:
    """A number that is constant for the host: CRC-32 of the MD5 of its name."""
    digest = md5(socket.gethostname().encode(), usedforsecurity=False).digest()
    return zlib.crc32(digest) % NODE_ID_COUNT


@dataclass(slots=True)
class Options:
    """Attribute = config key; durations are in nanoseconds, with the suffix `_ns`. /config may change two of them."""

    # fmt: off
    check: bool = option(
        BOOL, False, "check settings, folder, addresses and limits, print a line for each and exit", key="",
        group="General")
    node_id: int = option(INT, default_node_id, "number of this broker in message ids, in [0,1024)", key="id")

    tcp_address: str = option(
        STRING, "0.0.0.0:4150", "listen for TCP clients on this <addr>:<port> or <path>", group="Addresses")
    http_address: str = option(
        STRING, "0.0.0.0:4151", "listen for HTTP clients on this <addr>:<port> or <path>; empty = off")
    https_address: str = option(
        STRING, "0.0.0.0:4152", "listen for HTTPS clients on this <addr>:<port>, given a certificate; empty = off")
    http_admin_address: str = option(
        STRING, "", "serve /config, /debug, /drain, delete, empty and pause here (<addr>:<port> or <path>) and "
        "nowhere else; empty = on the HTTP and HTTPS addresses")
    allowed_hosts: list[str] = option(
        STRINGS, None, "name of this machine in HTTP requests: then no others are served, but localhost and addresses "
        "(repeatable; on a loopback address this is always so)", flag="allowed-host")
    http_drain: bool = option(
        BOOL, False, "serve POST /drain without --http-admin-address, too")

    nsqlookupd_tcp_addresses: list[str] | None = option(
        STRINGS, None, "TCP <addr>:<port> of an nsqlookupd to register with (repeatable)",
        flag="lookupd-tcp-address", group="nsqlookupd")
    broadcast_address: str = option(STRING, socket.gethostname, "host name or address to announce to nsqlookupd")
    broadcast_tcp_port: int = option(INT, 0, "TCP port to announce to nsqlookupd; 0 = the real one")
    broadcast_http_port: int = option(INT, 0, "HTTP port to announce to nsqlookupd; 0 = the real one")
    registration_secret_file: str = option(
        STRING, "", "path to the secret to send to every nsqlookupd (its --registration-secret-file)")
    lookupd_tls: bool = option(BOOL, False, "use TLS to every nsqlookupd, over TCP and HTTP")
    lookupd_tls_root_ca_file: str = option(
        STRING, "", "path to the authorities of nsqlookupd's certificates, in PEM; empty = the system's")
    lookupd_tls_cert: str = option(STRING, "", "path to the certificate to show nsqlookupd, in PEM")
    lookupd_tls_key: str = option(STRING, "", "path to that certificate's private key, in PEM")
    http_client_connect_timeout_ns: int = option(
        DURATION, "2s", "longest time to connect to an nsqlookupd or an auth server over HTTP")
    http_client_request_timeout_ns: int = option(
        DURATION, "5s", "longest time for a whole HTTP request to an nsqlookupd or an auth server")

    data_path: str = option(
        STRING, "", "folder of the queues and of nsqd.dat; empty = the current folder", group="Disk")
    min_free_disk: int = option(
        INT, 0, "refuse new messages while fewer bytes than this are free on the disk; 0 = until a write fails")
    max_bytes_per_file: int = option(INT, 104857600, "size in bytes at which a queue begins its next file")
    sync_every: int = option(INT, 2500, "messages written to and read from a queue between two fsyncs")
    sync_timeout_ns: int = option(DURATION, "2s", "longest time between two fsyncs of a queue")
    durable: str = option(
        one_of(*DURABILITIES), DURABILITIES[0],
        "what an OK promises: always (on disk), interval (a kill loses nothing, a power cut what "
        "--durable-interval has yet to sync), or off (what --mem-queue-size and --sync-every say)")
    durable_interval_ns: int = option(
        DURATION, "1s", "time between two fsyncs of the commit log with --durable=interval")
    commit_log_size: int = option(
        INT, 268435456, "bytes of a new commit log, which --durable=interval and always write")

    mem_queue_size: int = option(
        INT, 10000, "messages that each topic and each channel keeps in memory; further ones go to disk",
        group="Topics and queues")
    msg_timeout_ns: int = option(
        DURATION, "60s", "time that a consumer has for a message before it is requeued")
    max_msg_timeout_ns: int = option(DURATION, "15m", "longest message timeout that a consumer may ask for")
    max_req_timeout_ns: int = option(DURATION, "1h", "longest delay of a requeued or deferred message")
    max_defer_ns: int = option(
        DURATION, "0s", "longest delay in place of --max-req-timeout, up to 2160h (90 days); 0s = that one")
    max_topics: int = option(INT, 0, "number of topics from which clients create no more; 0 = unlimited")
    max_channels_per_topic: int = option(
        INT, 0, "number of channels of a topic from which clients create no more; 0 = unlimited")
    max_channel_consumers: int = option(INT, 0, "most consumers of a channel on this broker; 0 = unlimited")

    policy_file: str = option(
        STRING, "", "path to the policies, in TOML; empty = policies.json in the data folder, which /policies changes")

    max_msg_size: int = option(INT, 1048576, "largest message in bytes", group="Limits")
    max_body_size: int = option(INT, 5242880, "largest body of a command in bytes")
    max_connections: int = option(
        INT, 0, "most clients of each listener (TCP, HTTP, HTTPS); further ones are refused; 0 = unlimited")
    max_memory: int = option(
        INT, 0, "bytes of memory for messages and buffers; long before it is full, messages go to disk; 0 = unlimited")
    max_rdy_count: int = option(INT, 2500, "highest RDY count that a consumer may set")
    max_heartbeat_interval_ns: int = option(DURATION, "60s", "longest heartbeat interval that a client may ask for")
    max_output_buffer_size: int = option(INT, 65536, "largest output buffer in bytes that a client may ask for")
    max_output_buffer_timeout_ns: int = option(
        DURATION, "30s", "longest output buffer timeout that a client may ask for")
    min_output_buffer_timeout_ns: int = option(
        DURATION, "25ms", "shortest output buffer timeout that a client may ask for")
    output_buffer_timeout_ns: int = option(
        DURATION, "250ms", "longest time that output waits in a buffer, unless the client asks for another")

    tls_cert: str = option(STRING, "", "path to the certificate, in PEM", group="TLS and compression")
    tls_key: str = option(STRING, "", "path to the certificate's private key, in PEM")
    tls_required: int = option(
        REQUIREMENT, TLS_REQUIRED_OFF,
        "refuse clients without TLS: true, false, or tcp-https (TCP must use TLS, HTTP need not)")
    tls_min_version: int = option(TLS_VERSION, TLS_VERSIONS[""], "lowest TLS version: tls1.0, tls1.1, tls1.2 or tls1.3")
    tls_client_auth_policy: str = option(
        STRING, "", "certificates of clients: require (any) or require-verify (signed by --tls-root-ca-file)")
    tls_root_ca_file: str = option(STRING, "", "path to the certificate authorities, in PEM")
    deflate: bool = option(BOOL, True, "let clients use deflate")
    max_deflate_level: int = option(INT, 6, "highest deflate level that a client may ask for, 1 to 9")
    snappy: bool = option(BOOL, True, "let clients use snappy")

    auth_http_addresses: list[str] = option(
        STRINGS, None, "<addr>:<port> or URL of an auth server to ask what clients may do (repeatable)",
        flag="auth-http-address", group="Authorization")
    auth_http_request_method: str = option(STRING, "get", "HTTP method of requests to auth servers: get or post")
    max_auth_failures: int = option(
        INT, 10, "wrong secrets a minute from one address; for more no auth server is asked; 0 = unlimited")
    http_auth_required: bool = option(
        BOOL, False, "require a secret of HTTP requests that publish or change something, too")

    statsd_address: str = option(
        STRING, "", "UDP <addr>:<port> of statsd; empty = off", group="Metrics and statsd")
    statsd_interval_ns: int = option(DURATION, "60s", "time between two reports to statsd")
    statsd_prefix: str = option(STRING, "nsq.%s", "prefix of keys sent to statsd; %s stands for host and port")
    statsd_mem_stats: bool = option(BOOL, True, "report memory to statsd")
    statsd_udp_packet_size: int = option(INT, 508, "largest UDP packet to statsd in bytes")
    statsd_exclude_ephemeral: bool = option(BOOL, False, "leave ephemeral topics and channels out of statsd")
    e2e_processing_latency_percentiles: list[float] = option(
        FLOATS, None, "quantile of the end-to-end latency to keep, in (0,1] (repeatable, or a list with commas)",
        flag="e2e-processing-latency-percentile")
    e2e_processing_latency_window_time_ns: int = option(
        DURATION, "10m", "time that the latency quantiles cover")
    metrics_latency_histogram: bool = option(
        BOOL, False, "count how long messages take from publish to FIN, per channel, for /metrics")
    metrics_max_series: int = option(INT, 100000, "most series of topics and channels in /metrics; 0 = unlimited")
    metrics_exclude_channels: bool = option(BOOL, False, "leave channels out of /metrics")
    metrics_exclude_ephemeral: bool = option(BOOL, False, "leave ephemeral topics and channels out of /metrics")

    log_level: int = option(logs.LEVEL, logs.LEVELS["info"], logs.LEVEL_HELP, group="Logging")
    log_prefix: str = option(STRING, LOG_PREFIX, logs.LOG_PREFIX_HELP)
    log_format: int = option(logs.FORMAT, logs.FORMATS["text"], logs.FORMAT_HELP)

    enable_experiment: list[str] = option(
        STRINGS, None, "experimental feature to switch on: topology-aware-consumption (repeatable)",
        group="Experiments")
    topology_region: str = option(STRING, "", "region of this broker, such as a city")
    topology_zone: str = option(STRING, "", "zone of this broker within its region, such as a rack")

    queue_scan_worker_pool_max: int = option(
        INT, 4, "has no effect: deadlines are not scanned for here", group="Accepted for compatibility")
    queue_scan_selection_count: int = option(INT, 20, "has no effect: deadlines are not scanned for here")
    verbose: bool = option(BOOL, False, "has no effect: use --log-level", key="")
    worker_id: bool = option(BOOL, False, "has no effect: use --node-id", key="")
    # fmt: on

    @property
    def defer_ns_max(self) -> int:
        """The longest delay of DPUB, REQ and `defer=`."""
        return self.max_defer_ns or self.max_req_timeout_ns

    @property
    def has_tls(self) -> bool:
        """Whether there is a certificate, or should be."""
        return bool(self.tls_cert or self.tls_key)

    def listening(self) -> Iterator[tuple[str, str]]:
        """The addresses to listen on, by flag."""
        yield "--tcp-address", self.tcp_address
        if self.http_address:
            yield "--http-address", self.http_address
        if self.has_tls and self.https_address:
            yield "--https-address", self.https_address
        if self.http_admin_address:
            yield "--http-admin-address", self.http_admin_address

    def unprotected(self) -> Iterator[tuple[str, str, str]]:
        """Those of them whose clients need neither TLS nor a secret, with the flag that would demand one."""
        if not self.auth_http_addresses and self.tls_required == TLS_REQUIRED_OFF:
            yield "--tcp-address", self.tcp_address, "--auth-http-address"
        # Where everybody must use TLS, plain HTTP is refused.
        if not self.http_auth_required and self.tls_required != TLS_REQUIRED:
            yield "--http-address", self.http_address, "--http-auth-required"
            yield "--http-admin-address", self.http_admin_address, "--http-auth-required"


def parse(argv: list[str]) -> Options:
    """Parse the words after the program's name."""
    return parse_options(Options, argv, PROGRAM, f"{VERSION_LINE}\n{own_line()}", ABOUT, OLD_KEYS)


def validate(options: Options) -> None:
    """Raise OptionsError for settings that NSQ refuses, then for those that would crash or hang it."""
    if not 1 <= options.max_deflate_level <= 9:
        raise OptionsError("--max-deflate-level must be [1,9]")
    if not 0 <= options.node_id < NODE_ID_COUNT:
        raise OptionsError("--node-id must be [0,1024)")
    if options.tls_client_auth_policy and options.tls_required == TLS_REQUIRED_OFF:
        options.tls_required = TLS_REQUIRED
    if options.tls_required and not options.has_tls:
        raise OptionsError("cannot require TLS client connections without TLS key and cert")
    if options.auth_http_request_method not in ("get", "post"):
        raise OptionsError("--auth-http-request-method must be post or get")
    if options.http_auth_required and not options.auth_http_addresses:
        raise OptionsError("--http-auth-required needs an auth server: give --auth-http-address")
    for quantile in options.e2e_processing_latency_percentiles:
        if not 0 < quantile <= 1:
            raise OptionsError(f"invalid E2E processing latency percentile: {quantile:g}")
    _refuse_harmful(options)


def _refuse_harmful(options: Options) -> None:
    # nsqd starts with these and then dies at the first topic or client, or stops delivering.
    counts = {
        "mem-queue-size": (options.mem_queue_size, 0),
        "queue-scan-worker-pool-max": (options.queue_scan_worker_pool_max, 1),
        "max-bytes-per-file": (options.max_bytes_per_file, 1),
        "max-msg-size": (options.max_msg_size, 1),
        "max-body-size": (options.max_body_size, 1),
        "statsd-udp-packet-size": (options.statsd_udp_packet_size, 1),
        "metrics-max-series": (options.metrics_max_series, 0),
        "max-topics": (options.max_topics, 0),
        "max-channels-per-topic": (options.max_channels_per_topic, 0),
        "max-auth-failures": (options.max_auth_failures, 0),
        "max-connections": (options.max_connections, 0),
        "min-free-disk": (options.min_free_disk, 0),
        "max-memory": (options.max_memory, MEMORY_MIN if options.max_memory else 0),
        "commit-log-size": (options.commit_log_size, COMMIT_LOG_SIZE_MIN),
    }
    for flag, (count, least) in counts.items():
        if count < least:
            raise OptionsError(f"--{flag} must be at least {least}, not {count}")
    # A message that is larger than all memory would never be taken.
    most = min(MESSAGE_SIZE_MAX, options.max_memory or MESSAGE_SIZE_MAX)
    if options.max_msg_size > most:
        raise OptionsError(f"--max-msg-size must be at most {most}, not {options.max_msg_size}")
    _refuse_commit_log(options)
    durations_ns = {
        "sync-timeout": options.sync_timeout_ns,
        "durable-interval": options.durable_interval_ns,
        "output-buffer-timeout": options.output_buffer_timeout_ns,
        "e2e-processing-latency-window-time": options.e2e_processing_latency_window_time_ns,
    }
    for flag, duration_ns in durations_ns.items():
        if duration_ns <= 0:
            raise OptionsError(
                f"--{flag} must be longer than 0, not {format_duration(duration_ns)}"
            )
    for flag, longest_ns in (
        ("max-req-timeout", options.max_req_timeout_ns),
        ("max-defer", options.max_defer_ns),
    ):
        if longest_ns < 0:
            raise OptionsError(f"--{flag} must not be negative: {format_duration(longest_ns)}")
    if options.max_defer_ns > DEFER_NS_MAX:
        raise OptionsError(
            f"--max-defer must be at most {format_duration(DEFER_NS_MAX)} (90 days), "
            f"not {format_duration(options.max_defer_ns)}"
        )
    for item in declared(Options):
        if item.kind is DURATION and getattr(options, item.attribute) > DURATION_NS_MAX:
            raise OptionsError(
                f"--{item.flag} must be at most {format_duration(DURATION_NS_MAX)} (100 years), "
                f"not {format_duration(getattr(options, item.attribute))}"
            )
    if options.statsd_interval_ns <= 1_000_000_000:
        shown = format_duration(options.statsd_interval_ns)
        raise OptionsError(f"--statsd-interval must be longer than 1s, not {shown}")


def _refuse_commit_log(options: Options) -> None:
    size = options.commit_log_size
    if size > COMMIT_LOG_SIZE_MAX:
        raise OptionsError(f"--commit-log-size must be at most {COMMIT_LOG_SIZE_MAX}, not {size}")
    least = COMMIT_LOG_BODIES * max(options.max_body_size, options.max_msg_size)
    # Without the log a larger body is as good as ever.
    if options.durable != DURABILITIES[0] and size < least:
        raise OptionsError(
            f"--commit-log-size must be at least {COMMIT_LOG_BODIES} times --max-body-size, {least}, not {size}"
        )


def expand_statsd_prefix(prefix: str, host: str, port: int) -> str:
    """The prefix in front of keys: %s replaced by the host and port, one dot at the end."""
    name = f"{host}:{port}".replace(".", "_").replace(":", "_")
    expanded = prefix.replace("%s", name)
    return expanded if not expanded or expanded.endswith(".") else expanded + "."
