"""The programs that nsqfast installs: what each is for, where it begins, and the extras that it needs."""

from dataclasses import dataclass

PREFIX = "nsqfast-"


@dataclass(frozen=True, slots=True)
class Program:
    """One of them; `command` is its name without the prefix."""

    command: str
    purpose: str
    module: str  # its `main` takes the words of the command line and returns the exit status
    extras: tuple[str, ...] = ("server",)

    @property
    def name(self) -> str:
        """The name under which it is installed."""
        return PREFIX + self.command


PROGRAMS = (
    Program("nsqd", "the broker", "nsqfast.nsqd.main"),
    Program("nsqlookupd", "knows which nsqd has which topic", "nsqfast.nsqlookupd.main"),
    Program(
        "nsqadmin", "shows and steers a cluster in a browser", "nsqfast.nsqadmin.main", ("admin",)
    ),
    Program("to-nsq", "publishes standard input", "nsqfast.tools.to_nsq.main"),
    Program("nsq-tail", "prints the messages of topics", "nsqfast.tools.nsq_tail.main"),
    Program("nsq-stat", "shows rates and depths of channels", "nsqfast.tools.nsq_stat.main"),
    Program("nsq-to-file", "archives topics in files", "nsqfast.tools.nsq_to_file.main"),
    Program("nsq-to-http", "sends messages to a web server", "nsqfast.tools.nsq_to_http.main"),
    Program("nsq-to-nsq", "passes messages on to another nsqd", "nsqfast.tools.nsq_to_nsq.main"),
    Program("replay", "publishes archives again", "nsqfast.tools.replay.main"),
    Program("bench", "puts load on an nsqd and measures it", "nsqfast.tools.bench.main"),
    Program("run", "runs the handlers of an App", "nsqfast.app.main", ()),
    Program("completion", "completes flags in bash and zsh", "nsqfast.tools.completion.main"),
    Program(
        "nsq-spool",
        "takes messages into the spool that Spark reads",
        "nsqfast.spark.receiver.main",
        ("arrow", "server"),
    ),
    Program("spark", "jobs: topics to Parquet and back", "nsqfast.spark_jobs.main", ("spark",)),
)
