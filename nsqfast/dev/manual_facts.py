"""What a man page says beside the options: of every program in [project.scripts]."""

from dataclasses import dataclass, field

_DONE = "It is done, or was told to stop."
_FAILED = (
    "The operator has to change something, or a peer refused; a line on standard error says what."
)
_UNREADABLE = "The command line cannot be read; standard error says why."

_DAEMON_STATUSES = {
    0: "It was told to stop, and everything is saved.",
    1: "The start failed, or a stop could not save everything; a line of the log says what.",
    2: _UNREADABLE,
}
_TOOL_STATUSES = {0: _DONE, 1: _FAILED, 2: _UNREADABLE}
_STOP = "Stop in order; a further one changes nothing."
_PLAIN_STOP = {"SIGTERM, SIGINT": _STOP}


@dataclass(frozen=True, slots=True)
class Facts:
    """The parts of one page."""

    name: str  # what stands behind the program's name in NAME
    text: str  # paragraphs
    examples: dict[str, str]  # command, by what it does
    words: str = "[flags]"  # what follows the program's name
    signals: dict[str, str] = field(default_factory=lambda: _PLAIN_STOP)
    statuses: dict[int, str] = field(default_factory=lambda: _TOOL_STATUSES)
    files: dict[str, str] = field(default_factory=dict)
    see_also: tuple[str, ...] = ()


_NSQD = Facts(
    "message broker",
    """\
It speaks the protocol of NSQ's nsqd 1.3.0, takes its flags and its config file, and keeps its files: either
of the two can be stopped and the other one started on the same --data-path.

Messages that are only in memory survive a stop, but no kill. With --durable=always, which --mem-queue-size=0
and --sync-every=1 together mean as well, an answer of OK means that the message is on disk.

Under systemd (Type=notify) it reports when it serves, reloads and stops, and with WatchdogSec= that it is
alive.
""",
    {
        "A broker that two nsqlookupd know": "nsqfast-nsqd --data-path=/var/lib/nsqd \\\n"
        "    --lookupd-tcp-address=10.0.0.1:4160 --lookupd-tcp-address=10.0.0.2:4160",
        "Publish, and look at what is there": "curl -d hello 'http://127.0.0.1:4151/pub?topic=test'\n"
        "curl 'http://127.0.0.1:4151/stats?format=json'",
    },
    signals={
        "SIGTERM, SIGINT": "Stop: what is in memory, in flight or deferred goes to disk first. A further one changes "
        "nothing.",
        "SIGHUP": "Read the certificates and the secret for nsqlookupd again, for new connections.",
        "SIGUSR1": "Ignored.",
    },
    statuses=_DAEMON_STATUSES,
    files={
        "nsqd.dat": "In --data-path: the topics and channels, and which of them are paused.",
        "*.diskqueue.*": "In --data-path: the messages of a topic or channel, and the positions in them.",
        "*.bad": "In --data-path: bytes that are no message. Nothing reads them.",
    },
    see_also=("nsqfast-nsqlookupd", "nsqfast-nsqadmin", "nsqfast-bench"),
)

_NSQLOOKUPD = Facts(
    "directory of the topics of every nsqd",
    """\
Each nsqd reports its topics and channels here, and consumers ask here which nsqd have a topic. It keeps
everything in memory: when it starts again, every nsqd connects and reports anew.

Under systemd (Type=notify) it reports when it serves, reloads and stops, and with WatchdogSec= that it is
alive.
""",
    {
        "Start it, and ask who has a topic": "nsqfast-nsqlookupd\ncurl 'http://127.0.0.1:4161/lookup?topic=test'",
    },
    signals={
        "SIGTERM, SIGINT": _STOP,
        "SIGHUP": "Read the certificates and the secret again, for new connections.",
        "SIGUSR1": "Ignored.",
    },
    statuses=_DAEMON_STATUSES,
    see_also=("nsqfast-nsqd", "nsqfast-nsqadmin"),
)

_NSQADMIN = Facts(
    "pages and HTTP API of a cluster",
    """\
It shows what a cluster does and what is wrong with it, and creates, pauses, empties and deletes topics and
channels. Give it every nsqlookupd, or every nsqd.

Whoever reaches it may act, unless there are users: --auth-file, or --acl-http-header behind a proxy.

Under systemd (Type=notify) it reports when it serves, reloads and stops, and with WatchdogSec= that it is
alive.
""",
    {
        "The pages, on http://127.0.0.1:4171": "nsqfast-nsqadmin --http-address=127.0.0.1:4171 \\\n"
        "    --lookupd-http-address=127.0.0.1:4161",
        "A user for --auth-file": "nsqfast-nsqadmin --hash-password",
    },
    signals={
        "SIGTERM, SIGINT": _STOP,
        "SIGHUP": "Read the users of --auth-file again.",
        "SIGUSR1": "Ignored.",
    },
    statuses=_DAEMON_STATUSES,
    see_also=("nsqfast-nsqd", "nsqfast-nsqlookupd"),
)

_BENCH = Facts(
    "load generator for any nsqd",
    """\
The mode is one of pub (publish as fast as the broker takes it), sub (consume what a channel holds), pubsub
(both at the same time) and latency (publish at a fixed rate, and time each message from its due moment to
its arrival). Each mode takes a part of the options: nsqfast-bench MODE --help.
""",
    {
        "Publish for ten seconds": "nsqfast-bench pub --topic=bench --size=200 --batch-size=200",
        "Latency at 5,000 messages a second": "nsqfast-bench latency --topic=bench --channel=b --rate=5000",
    },
    words="pub|sub|pubsub|latency [flags]",
    signals={
        "SIGTERM, SIGINT": "End the run and print what was measured; a second one ends it at once."
    },
    statuses={
        0: "The run is complete.",
        1: "The broker cannot be reached, refuses, or ended a connection.",
        2: "The command line cannot be read, or the settings measure nothing.",
        130: "It was ended by SIGINT; 143 by SIGTERM.",
    },
    see_also=("nsqfast-nsqd", "nsqfast-nsq-stat"),
)

_COMMITLOG = Facts(
    "measure a disk for a commit log, and look at a ring",
    """\
The command is one of probe (how fast a disk commits, and which way a ring would use), check (whether a ring is
whole, and what is in it) and dump (its batches and their records). check and dump only read, and a broker may go on
with the ring meanwhile. Each command takes a part of the options: nsqfast-commitlog COMMAND --help.

probe writes into a folder nsqfast-probe-... of its own, up to 64 MiB at a time, and removes it in the end; a kill -9
leaves it there. A broker on the same disk is slower meanwhile.
""",
    {
        "How fast is this disk?": "nsqfast-commitlog probe --data-path=/var/lib/nsqd",
        "Is a ring whole?": "nsqfast-commitlog check /var/lib/nsqd/nsqd.commitlog",
        "Ten records, with the first bytes of each": (
            "nsqfast-commitlog dump --limit=10 --bodies /var/lib/nsqd/nsqd.commitlog"
        ),
    },
    words="probe|check|dump [FOLDER] [flags]",
    signals={"SIGTERM, SIGINT": "End at once; probe removes its files first."},
    statuses={
        0: "It is done; of check and dump: the ring is whole.",
        1: "The ring is damaged, or the disk refuses; a line says what.",
        2: "The command line cannot be read, or there is no ring that can be read.",
        130: "probe was ended by SIGINT; 143 by SIGTERM.",
    },
    see_also=("nsqfast-nsqd", "nsqfast-bench"),
)

_COMPLETION = Facts(
    "completion of all commands of nsqfast for a shell",
    """\
It prints what a shell reads to complete the flags and their values of every program of nsqfast.
""",
    {
        "In ~/.bashrc": "source <(nsqfast-completion bash)",
        "For zsh, once": 'nsqfast-completion zsh > "${fpath[1]}/_nsqfast"',
    },
    words="bash|zsh",
    signals={},
    see_also=("nsqfast-nsqd",),
)

_NSQ_TO_FILE = Facts(
    "archive topics in files",
    """\
Every message is on disk before it is finished, so that each is in a file at least once.
""",
    {
        "Files of an hour each, compressed": "nsqfast-nsq-to-file --topic=orders --output-dir=/archive --gzip \\\n"
        "    --lookupd-http-address=127.0.0.1:4161",
    },
    signals={
        "SIGTERM, SIGINT": "Sync, finish and close every file, and end.",
        "SIGHUP": "Sync, finish and close every file; the next message of a topic opens a new one.",
    },
    see_also=("nsqfast-replay", "nsqfast-nsq-tail"),
)

_REPLAY = Facts(
    "publish archives again",
    """\
It reads what nsqfast-nsq-to-file wrote: lines, JSON lines, Parquet and Arrow, compressed or not. A word may
be a file, a folder or a glob; - is standard input. Flags stand before the files.
""",
    {
        "What was archived on one day": "nsqfast-replay --nsqd-tcp-address=127.0.0.1:4150 --since=2026-11-22 \\\n"
        "    --until=2026-11-23 /archive",
    },
    words="[flags] file ...",
    statuses={
        0: "Everything was published.",
        1: "Not everything was published; a line on standard error says why.",
        2: _UNREADABLE,
        3: "Everything was published but for damaged records.",
    },
    see_also=("nsqfast-nsq-to-file", "nsqfast-to-nsq"),
)

_SPOOL = Facts(
    "receive messages into the spool that Spark reads",
    """\
Messages are in Arrow segments on disk before they are finished. It runs as a child of Spark's source, or as
a service of its own, so that Spark may be away.

The environment variable NSQFAST_CONSUMER_OPT adds lines of --consumer-opt.
""",
    {
        "A receiver as a service": "nsqfast-nsq-spool --spool=/var/spool/nsqfast/orders --topic=orders \\\n"
        "    --channel=spark --lookupd-http-address=127.0.0.1:4161",
    },
    signals={"SIGTERM, SIGINT": "Take nothing more, seal and finish the rest, and end."},
    see_also=("nsqfast-spark",),
)

_STAT = Facts(
    "rates, depths and counters of channels",
    """\
Without --channel it is a table on a terminal; with --json it prints one object for each report.
""",
    {
        "A channel, every two seconds": "nsqfast-nsq-stat --topic=orders --channel=shipping \\\n"
        "    --lookupd-http-address=127.0.0.1:4161",
    },
    signals={"SIGTERM, SIGINT, SIGHUP": "End."},
    see_also=("nsqfast-nsqadmin",),
)

_REDRIVE = Facts(
    "send dead letters back to the channel that they died in",
    """\
Each nsqd moves its own, by itself: a restart of it goes on. The program waits until all are done, and prints a line for
each; told to stop it says that they go on.
""",
    {
        "All of them, a hundred a second": "nsqfast-redrive --topic=orders --channel=shipping --rate=100 \\\n"
        "    --lookupd-http-address=127.0.0.1:4161",
        "Those of one user": "nsqfast-redrive --topic=orders --channel=shipping --filter='\"user\": 17' \\\n"
        "    --nsqd-http-address=127.0.0.1:4151",
    },
    signals={"SIGTERM, SIGINT": "Do not wait any more; --cancel ends what is running."},
    see_also=("nsqfast-nsqd", "nsqfast-nsqadmin"),
)

_TAIL = Facts(
    "print messages",
    """\
It consumes a channel of its own, which goes when it ends, unless --channel names another.
""",
    {
        "The next ten messages": "nsqfast-nsq-tail --topic=orders -n 10 --nsqd-tcp-address=127.0.0.1:4150"
    },
    see_also=("nsqfast-nsq-to-file",),
)

_TO_HTTP = Facts(
    "send the messages of a channel to HTTP servers",
    """\
A message is finished when a server has answered with 200 to 299.
""",
    {
        "POST each message": "nsqfast-nsq-to-http --topic=orders --post=http://127.0.0.1:8080/orders \\\n"
        "    --lookupd-http-address=127.0.0.1:4161",
    },
    see_also=("nsqfast-nsq-to-nsq",),
)

_TO_NSQ = Facts(
    "publish the messages of a channel to other brokers",
    """\
A message is finished when the destination has it.
""",
    {
        "A mirror": "nsqfast-nsq-to-nsq --topic=orders --nsqd-tcp-address=10.0.0.1:4150 \\\n"
        "    --destination-nsqd-tcp-address=10.1.0.1:4150",
    },
    see_also=("nsqfast-nsq-to-http",),
)

_STDIN = Facts(
    "publish standard input",
    """\
Every line is a message, or what stands before another --delimiter.
""",
    {
        "A file of lines": "nsqfast-to-nsq --topic=orders --nsqd-tcp-address=127.0.0.1:4150 < orders.txt"
    },
    signals={"SIGTERM, SIGINT": "Read no more, publish what was read, and end."},
    see_also=("nsqfast-replay",),
)

_RUN = Facts(
    "run the handlers of an App",
    """\
MODULE:APP is a variable of a Python module that is installed or stands in the current folder: worker:app is the
variable app of worker.py.

With --workers or --reload it starts other processes, which handle the messages, and starts those again that
end. /healthz and /metrics of --http-address are of all of them. When one cannot start at all, or they end more
than five times in a minute, it ends, too.
""",
    {
        "While one writes worker.py": "nsqfast-run worker:app --reload",
        "Four processes, and a page for probes and Prometheus": "nsqfast-run worker:app --workers=4 \\\n"
        "    --http-address=:8080",
    },
    words="MODULE:APP [flags]",
    signals={
        "SIGTERM, SIGINT": "Take no more messages, let handlers end, leave the lifespan. A further one changes nothing."
    },
    see_also=("nsqfast-nsqd",),
)

_SPARK = Facts(
    "jobs for Apache Spark around NSQ",
    """\
The job is one of those below. Each is also a script for spark-submit, in the folder of the package
nsqfast.spark_jobs. It needs Java 17 or newer, and pip install 'nsqfast[spark]'.
""",
    {
        "A topic into Parquet": "nsqfast-spark ingest --topic=orders --channel=lake \\\n"
        "    --nsqd-tcp-address=127.0.0.1:4150 --spool=/data/spool \\\n"
        "    --checkpoint=/data/checkpoint --output=/data/lake",
    },
    words="ingest|load-archives|compact|replay|stats [flags]",
    statuses={**_TOOL_STATUSES, 3: "It is done, with more bad records than --max-bad."},
    see_also=("nsqfast-nsq-spool",),
)

FACTS = {
    "nsqfast-bench": _BENCH,
    "nsqfast-commitlog": _COMMITLOG,
    "nsqfast-completion": _COMPLETION,
    "nsqfast-nsq-spool": _SPOOL,
    "nsqfast-nsq-stat": _STAT,
    "nsqfast-redrive": _REDRIVE,
    "nsqfast-nsq-tail": _TAIL,
    "nsqfast-nsq-to-file": _NSQ_TO_FILE,
    "nsqfast-nsq-to-http": _TO_HTTP,
    "nsqfast-nsq-to-nsq": _TO_NSQ,
    "nsqfast-nsqadmin": _NSQADMIN,
    "nsqfast-nsqd": _NSQD,
    "nsqfast-nsqlookupd": _NSQLOOKUPD,
    "nsqfast-replay": _REPLAY,
    "nsqfast-run": _RUN,
    "nsqfast-spark": _SPARK,
    "nsqfast-to-nsq": _STDIN,
}
