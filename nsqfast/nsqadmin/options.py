"""Every setting of nsqadmin, with the names, defaults and meaning of nsqadmin 1.3.0, and those of our own pages."""

from dataclasses import dataclass

from nsqfast.program import logs
from nsqfast.program.command_line import parse_options
from nsqfast.program.options import BOOL, DURATION, FLOAT, INT, STRING, STRINGS, one_of, option
from nsqfast.version import nsq_line, own_line

PROGRAM = "nsqadmin"
# Without effect in nsqadmin 1.3.0, and so here.
OLD_KEYS = ("verbose", "template_dir", "use_statsd_prefixes")
ABOUT = "Pages and an HTTP API to watch and administer a whole cluster."
VERSION_LINE = nsq_line(PROGRAM)
LOG_PREFIX = "[nsqadmin] "
FORMS = ("nsqadmin", "alertmanager", "slack")


@dataclass(slots=True)
class Options:
    """Attribute = config key; durations are in nanoseconds, with the suffix `_ns`."""

    # fmt: off
    check: bool = option(
        BOOL, False, "check settings, addresses and limits, print a line for each and exit", key="",
        group="General")

    http_address: str = option(
        STRING, "0.0.0.0:4171", "listen for browsers on this <addr>:<port>", group="Addresses")
    base_path: str = option(STRING, "/", "path under which a proxy serves the pages")
    max_connections: int = option(
        INT, 1000, "most connections of browsers and scripts; further ones are refused; 0 = unlimited")
    tls_cert: str = option(STRING, "", "path to a certificate, in PEM: serve HTTPS, not HTTP; SIGHUP reads it again")
    tls_key: str = option(STRING, "", "path to the certificate's private key, in PEM")
    nsqlookupd_http_addresses: list[str] = option(
        STRINGS, [], "HTTP <addr>:<port> of an nsqlookupd (repeatable)", flag="lookupd-http-address")
    nsqd_http_addresses: list[str] = option(
        STRINGS, [], "HTTP <addr>:<port> of an nsqd (repeatable)", flag="nsqd-http-address")

    http_client_connect_timeout_ns: int = option(
        DURATION, "2s", "longest time to connect to an nsqd or nsqlookupd", group="Requests to nsqd and nsqlookupd")
    http_client_request_timeout_ns: int = option(DURATION, "5s", "longest time for a whole request to one of them")
    http_client_tls_insecure_skip_verify: bool = option(BOOL, False, "do not verify their certificates")
    http_client_tls_root_ca_file: str = option(
        STRING, "", "path to the certificate authorities to verify them against, in PEM")
    http_client_tls_cert: str = option(STRING, "", "path to a certificate to show them, in PEM")
    http_client_tls_key: str = option(STRING, "", "path to that certificate's private key, in PEM")
    auth_secret_file: str = option(
        STRING, "", "file with a secret for nsqd that ask for one (AUTH, --http-auth-required); SIGHUP reads it again")

    auth_file: str = option(
        STRING, "", "file of users, roles and password hashes for the built-in login (see --hash-password)",
        group="Who may do what")
    session_lifetime_ns: int = option(DURATION, "12h", "time after which a login ends")
    hash_password: bool = option(
        BOOL, False, "read a password from the terminal or stdin, print a line for --auth-file and exit", key="")
    acl_http_header: str = option(
        STRING, "X-Forwarded-User", "HTTP header in which a proxy names the authenticated user")
    acl_trusted_cidr: list[str] = option(
        STRINGS, [], "CIDR of proxies whose --acl-http-header is believed (repeatable); none given = all proxies")
    admin_users: list[str] = option(
        STRINGS, [], "user who may pause, empty, delete and so on (repeatable); none given = everybody",
        flag="admin-user")
    allow_config_from_cidr: str = option(STRING, "127.0.0.1/8", "CIDR from which /config may be used; empty = all")
    allowed_hosts: list[str] = option(
        STRINGS, [], "name by which browsers reach this nsqadmin, beside its own, localhost and addresses "
        "(repeatable; a login with --auth-file needs none)", flag="allowed-host")
    audit_file: str = option(
        STRING, "", "file to which a line of JSON is added for each action, login, peek and export")
    notification_http_endpoint: str = option(STRING, "", "URL to which each action is sent")
    viewer_sees_bodies: bool = option(BOOL, False, "show bodies of messages to viewers, not only to admins")
    mask_json: list[str] = option(
        STRINGS, [], "key whose values in JSON bodies are shown to nobody (repeatable)")
    no_export: bool = option(BOOL, False, "refuse exports as CSV and JSON")

    poll_interval_ns: int = option(
        DURATION, "0s",
        "time between two looks at the cluster; 0s = as often as a tenth of a core allows, every 2s at most",
        group="Charts")
    history_ns: int = option(DURATION, "24h", "time that charts go back", flag="history", key="history")
    history_memory: int = option(INT, 128 << 20, "bytes of memory for charts")
    history_file: str = option(
        STRING, "", "file that keeps charts over a restart; nodes, problems and silences are kept beside it")

    problem_no_consumers_ns: int = option(
        DURATION, "60s", "report a channel that has had messages and no consumers for so long", group="Problems")
    problem_stuck_ns: int = option(
        DURATION, "2m",
        "report a channel of whose messages in flight none was finished for so long; use twice nsqd's --msg-timeout")
    problem_backlog_time_ns: int = option(DURATION, "1m", "report a backlog that has grown for so long")
    problem_backlog_depth: int = option(INT, 1000, "report a growing backlog only beyond this depth")
    problem_backlog_growth: float = option(
        FLOAT, 0.1, "report a growing backlog only if it grows by so many messages a second, over five minutes")
    problem_backlog_age_ns: int = option(
        DURATION, "10m", "call a growing backlog critical when its oldest message is older")
    problem_window_ns: int = option(
        DURATION, "5m", "time over which requeues, timeouts and dead letters are counted")
    problem_rate: float = option(
        FLOAT, 1.0, "report requeues and timeouts only if there are so many a second")
    problem_requeue_warning: float = option(
        FLOAT, 0.2, "report a channel that requeues this share of its deliveries")
    problem_requeue_critical: float = option(FLOAT, 0.5, "share of requeues from which that is critical")
    problem_timeout_warning: float = option(FLOAT, 0.2, "report a channel with this share of timeouts")
    problem_timeout_critical: float = option(FLOAT, 0.5, "share of timeouts from which that is critical")
    problem_paused_ns: int = option(
        DURATION, "15m", "report a topic or channel that has been paused for so long and fills")
    problem_no_channel_ns: int = option(
        DURATION, "60s", "report a topic that has had messages and no channel for so long")
    problem_not_ready_ns: int = option(
        DURATION, "60s", "report a channel with messages whose consumers have all had RDY 0 for so long")
    problem_lookupd_disagree_ns: int = option(
        DURATION, "30s", "report an nsqd that only some nsqlookupd have known for so long")
    problem_dead_letter_suffix: str = option(
        STRING, "-dead", "ending of topics that hold the dead letters of others; empty = there are none")
    problem_node_down_ns: int = option(
        DURATION, "0s", "call an nsqd that does not answer critical after so long, until then a warning")
    planned_stop_ns: int = option(
        DURATION, "15m", "time in which an nsqd that stopped after a drain may come back without a report")
    problem_disk_free: float = option(
        FLOAT, 0.1, "report an nsqd with less than this share of its disk free (only nsqfast-nsqd tells)")

    problem_file: str = option(
        STRING, "", "file (TOML) with other thresholds and severities for some topics; SIGHUP reads it again")
    problem_webhook: str = option(
        STRING, "", "URL to which problems are sent when they are raised, change, and are over")
    problem_webhook_form: str = option(
        one_of(*FORMS), FORMS[0], "form of what is sent: nsqadmin's own, that of Alertmanager's webhook, or Slack's")

    graphite_url: str = option(STRING, "", "URL of Graphite's HTTP server", group="Graphite and statsd")
    proxy_graphite: bool = option(BOOL, False, "ask Graphite on behalf of browsers, which need not reach it")
    statsd_counter_format: str = option(
        STRING, "stats.counters.%s.count", "what statsd makes of the key of a counter; %s stands for the key")
    statsd_gauge_format: str = option(
        STRING, "stats.gauges.%s", "what statsd makes of the key of a gauge; %s stands for the key")
    statsd_prefix: str = option(
        STRING, "nsq.%s", "prefix of keys sent to statsd; %s stands for host and port; as given to nsqd")
    statsd_interval_ns: int = option(DURATION, "60s", "time between two reports to statsd; as given to nsqd")

    log_level: int = option(logs.LEVEL, logs.LEVELS["info"], logs.LEVEL_HELP, group="Logging")
    log_prefix: str = option(STRING, LOG_PREFIX, logs.LOG_PREFIX_HELP)
    log_format: int = option(logs.FORMAT, logs.FORMATS["text"], logs.FORMAT_HELP)

    dev_static_dir: str = option(
        STRING, "", "serve scripts and styles from this folder", group="Development and compatibility")
    verbose: bool = option(BOOL, False, "has no effect: use --log-level", key="")
    # fmt: on


def parse(argv: list[str]) -> Options:
    return parse_options(Options, argv, PROGRAM, f"{VERSION_LINE}\n{own_line()}", ABOUT, OLD_KEYS)
