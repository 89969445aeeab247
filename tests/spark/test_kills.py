"""kill -9 of everything in turn while `nsqfast-spark ingest` runs: nothing is missing, nothing is there twice."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pyarrow.dataset
import pyarrow.parquet
import pytest

from nsqfast.client.sync import Producer
from nsqfast.spark.spool.segments import ARROW, DONE, PARQUET
from support.namespaces import Network, why_not
from support.server import Server, start_nsqd
from support.spark_home import JVM_FLAGS, JVM_S_MAX
from support.tools import Tool
from support.waiting import eventually
from support.web import topic_stats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

LOCAL_CLUSTER = "--master=local-cluster[2,1,1024]"
LOCAL = "--master=local[2,4]"
TOPIC, CHANNEL = "orders", "lake"
PART = 40_000
BATCH = 1000
POLL_S = 0.002
# What is acknowledged is written: kill -9 of either broker loses nothing that it has not handed out. Ours waits for the
# disk, too; Go's would sync each message by itself, which takes minutes. It reads again what it had not noted as read.
DURABLE = {"nsqfast": ("--mem-queue-size=0", "--sync-every=1"), "go": ("--mem-queue-size=0",)}


def wait_until(what: str, is_so: Callable[[], object], ingest: Ingest) -> None:
    """As long as it takes on a busy machine; the test's own time ends what never comes."""
    ingest.tell(f"waiting for {what}")

    def is_seen() -> object:
        try:
            return is_so()
        except FileNotFoundError:  # a batch that is written once more was replaced in between
            return False

    while not is_seen():
        assert ingest.tool.process.poll() is None, ingest.text
        time.sleep(POLL_S)


class Ingest:
    """The job as a user starts it with these words, and the processes that belong to it, also on other machines."""

    def __init__(
        self,
        folder: Path,
        address: str,
        words: Sequence[str],
        segment_format: str,
        tell: Callable[[str], object],
        machines: Sequence[Tool] = (),
    ) -> None:
        self.tell = tell
        self.segment_format = segment_format
        self.machines = machines
        self.output = folder / "lake"
        self.checkpoint = folder / "checkpoint"
        self.spool = folder / "spool"
        self.tool = Tool([
            sys.executable, "-m", "nsqfast.spark_jobs.main", "ingest", *words,
            f"--topic={TOPIC}", f"--channel={CHANNEL}", f"--nsqd-tcp-address={address}",
            f"--spool={self.spool}", f"--output={self.output}", f"--checkpoint={self.checkpoint}",
            f"--segment-format={segment_format}",
            f"--conf=spark.executor.extraJavaOptions={JVM_FLAGS}",
        ])  # fmt: skip

    @property
    def text(self) -> str:
        return self.tool.err.decode(errors="replace")

    def processes(self, *marks: str) -> list[psutil.Process]:
        """Those below the job, and on other machines, whose command line has all of that in it."""
        found = []
        for tool in (self.tool, *self.machines):
            for process in psutil.Process(tool.process.pid).children(recursive=True):
                try:
                    line = " ".join(process.cmdline())
                except psutil.NoSuchProcess:
                    continue
                if all(mark in line for mark in marks):
                    found.append(process)
        return found

    def workers(self) -> list[psutil.Process]:
        """Where tasks run: the forks of Spark's daemons."""
        daemons = self.processes("pyspark.daemon", "pyspark.worker")
        pids = {process.pid for process in daemons}
        return [process for process in daemons if process.ppid() in pids]

    def count(self) -> int:
        """Messages in what was written as a whole."""
        if not self.output.exists():
            return 0
        paths = self.output.glob("topic=*/date=*/hour=*/batch=*/*.parquet")
        return sum(pyarrow.parquet.ParquetFile(path).metadata.num_rows for path in paths)

    def wait_count(self, count: int) -> None:
        wait_until(f"{count} messages in Parquet", lambda: self.count() >= count, self)

    def segments(self) -> int:
        return len(list(self.spool.glob(f"*/*.{self.segment_format}"))) + len(
            list(self.spool.glob(f"*/{DONE[self.segment_format]}/*.{self.segment_format}"))
        )

    def is_between_write_and_commit(self) -> bool:
        """Whether the newest batch is in the output, and Spark has not noted that it is."""
        begun = sorted(int(path.name) for path in (self.checkpoint / "offsets").glob("[0-9]*"))
        if not begun or (self.checkpoint / "commits" / str(begun[-1])).exists():
            return False
        return any(self.output.glob(f"topic=*/date=*/hour=*/batch=*-{begun[-1]}/*.parquet"))

    def kill(self) -> None:
        """All of the driver at once; nothing, if it has ended."""
        if self.tool.process.poll() is None:
            self.machines = ()  # they go on without it
            for process in self.processes("java"):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self.tool.kill()

    def bodies(self) -> Iterator[int]:
        table = pyarrow.dataset.dataset(self.output, partitioning="hive").to_table(columns=["body"])
        for body in table.column("body").to_pylist():
            yield int(body)


def publish(address: str, first: int, count: int) -> None:
    with Producer(address) as producer:
        for start in range(first, first + count, BATCH):
            producer.publish_many(TOPIC, [b"%d" % n for n in range(start, start + BATCH)])


def address_of(server: Server) -> str:
    return "{}:{}".format(*server.tcp)


def restart(implementation: str, folder: Path, server: Server) -> Server:
    """On the same ports and data."""
    tcp, http = server.tcp[1], server.http[1]
    ports = [f"--tcp-address=127.0.0.1:{tcp}", f"--http-address=127.0.0.1:{http}"]
    return start_nsqd(implementation, folder, *DURABLE[implementation], *ports)


def check(ingest: Ingest, server: Server, count: int) -> None:
    """Every message once, and none left behind."""
    assert ingest.tool.end() == 0, ingest.text
    bodies = list(ingest.bodies())
    missing = set(range(count)) - set(bodies)
    assert (len(missing), len(bodies) - len(set(bodies))) == (0, 0), "missing, doubled"
    left = topic_stats(server.http, TOPIC)["channels"][CHANNEL]
    assert (left["depth"], left["in_flight_count"]) == (0, 0)


@pytest.mark.parametrize(
    ("implementation", "segment_format"),
    [("nsqfast", ARROW), ("nsqfast", PARQUET), pytest.param("go", ARROW, marks=pytest.mark.go)],
)
def test_everything_is_killed_in_turn(
    implementation: str, segment_format: str, tmp_path: Path, tell: Callable[[str], object]
) -> None:
    """Receiver, worker, executor, nsqd, driver: each while a part of 200,000 messages is on its way.

    The executors are JVMs of their own; the driver that takes over is on another cluster, which is no matter.
    """
    kill_everything(
        implementation,
        tmp_path,
        lambda address: Ingest(tmp_path, address, [LOCAL_CLUSTER], segment_format, tell),
    )


def kill_everything(
    implementation: str, folder: Path, start_ingest: Callable[[str], Ingest]
) -> None:
    data = folder / "nsqd"
    data.mkdir()
    server = start_nsqd(implementation, data, *DURABLE[implementation])
    ingest = start_ingest(address_of(server))
    try:
        wait_until("the receiver", lambda: ingest.processes("nsqfast.spark.receiver"), ingest)
        kill_receiver(ingest, server)
        kill_worker(ingest, server)
        kill_executor(ingest, server)
        server = kill_nsqd(implementation, data, ingest, server)
        ingest = kill_driver(ingest, server, folder)
        check(ingest, server, 5 * PART)
    finally:
        ingest.kill()
        print(ingest.text)
        server.kill()


@pytest.mark.timeout(1800)
def test_on_a_cluster_of_two_machines(tmp_path: Path, tell: Callable[[str], object]) -> None:
    """Spark's own, whose workers have networks of their own: the folders are all that they share with the driver."""
    if reason := why_not():
        pytest.skip(reason)
    with Network() as network, contextlib.ExitStack() as stack:
        here, *others = [network.add(host) for host in ("here", "one", "two")]

        def start(host: str, *words: str) -> Tool:
            command = [f"{os.environ['SPARK_HOME']}/bin/spark-class", *words]
            return stack.enter_context(Tool(network.on(host, *command)))

        kind = "org.apache.spark.deploy"
        master = start("here", f"{kind}.master.Master", "--host", here, "--webui-port", "0")
        eventually(lambda: b"Starting Spark master at" in master.err, JVM_S_MAX)
        workers = [
            start(
                host, f"{kind}.worker.Worker", "--host", address, "--webui-port", "0", "--cores", "1",
                "--memory", "1g", "--work-dir", str(tmp_path / host), f"spark://{here}:7077",
            )
            for host, address in zip(("one", "two"), others, strict=True)
        ]  # fmt: skip
        eventually(
            lambda: all(b"Successfully registered" in worker.err for worker in workers), JVM_S_MAX
        )
        words = [
            f"--master=spark://{here}:7077",
            f"--conf=spark.driver.host={here}",
            f"--conf=spark.driver.bindAddress={here}",
        ]

        def start_ingest(address: str) -> Ingest:
            return Ingest(tmp_path, address, words, PARQUET, tell, workers)

        network.call("here", lambda: kill_everything("nsqfast", tmp_path, start_ingest))


def kill_receiver(ingest: Ingest, server: Server) -> None:
    """As soon as a segment has its name: its messages are on disk, and most of them not finished."""
    segments = ingest.segments()
    publish(address_of(server), 0, PART)
    wait_until("a segment", lambda: ingest.segments() > segments, ingest)
    for process in ingest.processes("nsqfast.spark.receiver"):
        process.kill()
    ingest.wait_count(PART)


def kill_worker(ingest: Ingest, server: Server) -> None:
    publish(address_of(server), PART, PART)
    wait_until("a batch", lambda: ingest.count() > PART or ingest.workers(), ingest)
    for process in ingest.workers():
        process.kill()
    ingest.wait_count(2 * PART)


def kill_executor(ingest: Ingest, server: Server) -> None:
    publish(address_of(server), 2 * PART, PART)
    ingest.processes("ExecutorBackend")[0].kill()
    ingest.wait_count(3 * PART)


def kill_nsqd(implementation: str, data: Path, ingest: Ingest, server: Server) -> Server:
    """Ours in the middle of its deliveries; Go's forgets what is in flight then, and so dies when nothing is."""
    segments = ingest.segments()
    publish(address_of(server), 3 * PART, PART)
    if implementation == "go":
        ingest.wait_count(4 * PART)
    else:
        wait_until("a segment", lambda: ingest.segments() > segments, ingest)
    server.kill()
    server = restart(implementation, data, server)
    ingest.wait_count(4 * PART)
    return server


def kill_driver(ingest: Ingest, server: Server, folder: Path) -> Ingest:
    """Behind the sink's write, in front of Spark's commit log."""
    publish(address_of(server), 4 * PART, PART)
    wait_until("a batch that is written", ingest.is_between_write_and_commit, ingest)
    ingest.kill()
    ingest = Ingest(folder, address_of(server), [LOCAL], ingest.segment_format, ingest.tell)
    wait_until("a commit", lambda: not ingest.is_between_write_and_commit(), ingest)
    ingest.wait_count(5 * PART)
    return ingest
