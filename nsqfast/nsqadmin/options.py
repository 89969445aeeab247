"""Every setting of nsqadmin, with the names, defaults and meaning of nsqadmin 1.3.0, and those of our own pages."""

from dataclasses import dataclass
from platform import python_version

from nsqfast.logs import FORMAT, FORMAT_HELP, FORMATS, LEVEL, LEVEL_HELP, LEVELS
from nsqfast.options import BOOL, DURATION, FLOAT, INT, STRING, STRINGS, option, parse_options
from nsqfast.version import NSQ_VERSION

PROGRAM = "nsqadmin"
VERSION_LINE = f"nsqadmin v{NSQ_VERSION} (built w/python{python_version()})"
LOG_PREFIX = "[nsqadmin] "


@dataclass(slots=True)
class Options:
    """Attribute = config key; durations are in nanoseconds, with the suffix `_ns`."""

    # fmt: off
    log_level: int = option(LEVEL, LEVELS["info"], LEVEL_HELP)
    log_prefix: str = option(STRING, LOG_PREFIX, "log message prefix")
    log_format: int = option(FORMAT, FORMATS["text"], FORMAT_HELP)
    verbose: bool = option(BOOL, False, "[deprecated] has no effect, use --log-level", key="")

    http_address: str = option(STRING, "0.0.0.0:4171", "<addr>:<port> to listen on for HTTP clients")
    base_path: str = option(STRING, "/", "URL base path")
    dev_static_dir: str = option(STRING, "", "serve scripts and styles from this folder (development use only)")

    graphite_url: str = option(STRING, "", "graphite HTTP address")
    proxy_graphite: bool = option(BOOL, False, "proxy HTTP requests to graphite")
    statsd_counter_format: str = option(
        STRING, "stats.counters.%s.count",
        "what statsd makes of a counter's key; %s stands for the key")
    statsd_gauge_format: str = option(
        STRING, "stats.gauges.%s", "what statsd makes of a gauge's key; %s stands for the key")
    statsd_prefix: str = option(
        STRING, "nsq.%s", "prefix of keys sent to statsd; %s stands for the host (must match nsqd)")
    statsd_interval_ns: int = option(DURATION, "60s", "how often nsqd sends to statsd (must match nsqd)")

    notification_http_endpoint: str = option(
        STRING, "", "HTTP endpoint (fully qualified) that is told of admin actions")

    nsqlookupd_http_addresses: list[str] = option(
        STRINGS, [], "lookupd HTTP address (may be given multiple times)", flag="lookupd-http-address")
    nsqd_http_addresses: list[str] = option(
        STRINGS, [], "nsqd HTTP address (may be given multiple times)", flag="nsqd-http-address")

    http_client_connect_timeout_ns: int = option(DURATION, "2s", "timeout for connecting to nsqd and nsqlookupd")
    http_client_request_timeout_ns: int = option(DURATION, "5s", "timeout for a whole request to nsqd or nsqlookupd")
    http_client_tls_insecure_skip_verify: bool = option(
        BOOL, False, "do not verify certificates of nsqd and nsqlookupd")
    http_client_tls_root_ca_file: str = option(STRING, "", "path to CA certificates to verify them against")
    http_client_tls_cert: str = option(STRING, "", "path to a certificate for them")
    http_client_tls_key: str = option(STRING, "", "path to the key of that certificate")

    allow_config_from_cidr: str = option(STRING, "127.0.0.1/8", "CIDR from which /config may be used (all if empty)")
    acl_http_header: str = option(STRING, "X-Forwarded-User", "HTTP header that names the authenticated user")
    admin_users: list[str] = option(
        STRINGS, [], "user who may do admin actions (may be given multiple times; if not given, all may)",
        flag="admin-user")
    acl_trusted_cidr: list[str] = option(
        STRINGS, [],
        "CIDR of proxies whose --acl-http-header is believed (may be given multiple times; if not given, all are)")

    allowed_hosts: list[str] = option(
        STRINGS, [],
        "name by which browsers may reach this nsqadmin on a loopback address (may be given multiple times)",
        flag="allowed-host")
    auth_file: str = option(
        STRING, "", "file of users, roles and password hashes for the built-in login (see --hash-password)")
    session_lifetime_ns: int = option(DURATION, "12h", "time after which a login ends")
    hash_password: bool = option(
        BOOL, False, "read a password from the terminal or stdin, print a line for --auth-file, exit", key="")
    audit_file: str = option(STRING, "", "append a JSON line for each action, login, peek and export to this file")
    viewer_sees_bodies: bool = option(BOOL, False, "let viewers, not only admins, see the bodies of messages")
    mask_json: list[str] = option(
        STRINGS, [], "key whose values in JSON bodies nobody is shown (may be given multiple times)")
    no_export: bool = option(BOOL, False, "refuse exports as CSV and JSON")

    poll_interval_ns: int = option(
        DURATION, "0s", "how often the cluster is asked (0 = as often as a tenth of a core allows, at most every 2 s)")
    history_ns: int = option(DURATION, "24h", "time for which charts go back", flag="history", key="history")
    history_memory: int = option(INT, 128 << 20, "bytes that charts may use")
    history_file: str = option(STRING, "", "file in which charts are kept over a restart")

    problem_no_consumers_ns: int = option(
        DURATION, "60s", "report a channel with messages and no consumers after this time")
    problem_stuck_ns: int = option(
        DURATION, "2m",
        "report a channel with messages in flight of which none is finished after this time; use twice --msg-timeout")
    problem_backlog_time_ns: int = option(DURATION, "1m", "report a growing backlog after this time")
    problem_backlog_depth: int = option(INT, 1000, "report a growing backlog beyond this depth")
    problem_backlog_growth: float = option(
        FLOAT, 0.1, "report a growing backlog that grows by this many messages a second, over five minutes")
    problem_backlog_age_ns: int = option(
        DURATION, "10m", "a growing backlog whose oldest message is older is critical")
    problem_window_ns: int = option(
        DURATION, "5m", "time over which requeues, timeouts and dead letters are counted")
    problem_rate: float = option(
        FLOAT, 1.0, "report requeues and timeouts only if there are this many a second")
    problem_requeue_warning: float = option(
        FLOAT, 0.2, "report a channel that requeues this share of what it delivers")
    problem_requeue_critical: float = option(FLOAT, 0.5, "share of requeues from which that is critical")
    problem_timeout_warning: float = option(FLOAT, 0.2, "report a channel of whose deliveries this share times out")
    problem_timeout_critical: float = option(FLOAT, 0.5, "share of timeouts from which that is critical")
    problem_paused_ns: int = option(
        DURATION, "15m", "report a paused topic or channel that fills after this time")
    problem_no_channel_ns: int = option(
        DURATION, "60s", "report a topic with messages and no channel after this time")
    problem_not_ready_ns: int = option(
        DURATION, "60s", "report a channel with messages whose consumers all have RDY 0 after this time")
    problem_lookupd_disagree_ns: int = option(
        DURATION, "30s", "report an nsqd that only some nsqlookupd know after this time")
    problem_dead_letter_suffix: str = option(
        STRING, "-dead", "ending of the topics that take the dead letters of others ('' = there are none)")
    problem_disk_free: float = option(
        FLOAT, 0.1, "report an nsqd whose data path has less than this share of its disk free (only nsqfast-nsqd says)")
    # fmt: on


def parse(argv: list[str]) -> Options:
    """Parse the words after the program's name."""
    return parse_options(Options, argv, PROGRAM, VERSION_LINE)
