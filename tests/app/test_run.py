"""nsqfast-run and app.run(): processes that get real signals, change their sources, and answer for one another."""

import json
import os
import re
import signal
import sys

import psutil
import pytest

from nsqfast.client.sync import Producer
from support.commands import run_command
from support.plain_install import link_installed
from support.ports import hold_port
from support.programs import Program, left
from support.server import ROOT
from support.waiting import eventually, wait_until
from support.web import request, topic_stats

pytestmark = pytest.mark.slow

WORKER = """\
import asyncio
import contextlib
import os
import sys
import time

from nsqfast import App, Config


def say(text):  # in one piece, also beside another thread
    os.write(1, f"{text}\\n".encode())


@contextlib.asynccontextmanager
async def lifespan(app):
    say(f"begin {os.getpid()}")
    yield {"pid": os.getpid()}
    say(f"end {os.getpid()}")


# A message that ends workers comes no sixth time, which would end all of them.
app = App(nsqd=os.environ["NSQD"], config=Config(max_attempts=5), lifespan=lifespan)


@app.subscribe(os.environ["TOPIC"], "c", type=str, concurrency=4)
async def on_loop(text, pid):
    say(f"got {text} {pid}")
    if text == "exit":
        os._exit(3)
    if text == "slow":
        await asyncio.sleep(1)
        say("slow is done")


@app.subscribe(os.environ["TOPIC"], "thread", type=str)
def in_thread(text):
    if text == "slow":
        time.sleep(1)
        say("slow is done in a thread")


if __name__ == "__main__":
    app.run(*sys.argv[1:])
"""
NSQFAST_RUN = (sys.executable, "-m", "nsqfast.app.main")
BOTH_SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])


@pytest.fixture
def start(tmp_path, address, topic):
    """Start a program in a folder with worker.py."""
    (tmp_path / "worker.py").write_text(WORKER)

    def start(*command):
        environment = {"NSQD": address, "TOPIC": topic, "PYTHONPATH": str(ROOT)}
        return Program(*command, cwd=tmp_path, **environment)

    return start


@pytest.fixture
def publish(address, topic):
    with Producer(address) as producer:
        yield lambda text: producer.publish(topic, text.encode())


def read_health(port):
    """The status and what is said, once somebody listens."""
    answer = request(("127.0.0.1", port), "GET", "/healthz")
    return answer.status, json.loads(answer.body)


def wait_healthy(port):
    def look():
        try:
            status, found = read_health(port)
        except OSError:
            return None
        return found if status == 200 else None

    return wait_until(look)


def pids_of(port):
    return {row["worker"]: row["pid"] for row in wait_healthy(port)["workers"]}


# -- one process


@BOTH_SIGNALS
@pytest.mark.parametrize(
    "words", [(*NSQFAST_RUN, "worker:app"), (sys.executable, "worker.py")], ids=["run", "app.run"]
)
def test_a_signal_lets_handlers_end(broker, topic, start, publish, words, number):
    """Those on the loop and those in threads; the rest stays at nsqd, and Ctrl-C leaves no traceback."""
    with start(*words) as program:
        eventually(lambda: {"c", "thread"} <= channels(broker, topic).keys())
        publish("slow")
        program.read_until("got slow")
        eventually(lambda: channels(broker, topic)["thread"]["in_flight_count"] == 1)
        assert program.end(number) == 0, program.text
    assert "slow is done" in program.lines
    assert "slow is done in a thread" in program.lines
    assert program.lines[-1].startswith(("end ", "20"))
    assert "Traceback" not in program.text
    for name in ("c", "thread"):
        eventually(lambda name=name: left(broker, topic, name) == 0)


def channels(broker, topic):
    found = topic_stats(broker.http, topic)
    return found["channels"] if found else {}


def test_the_page(start, publish, topic, broker):
    port = hold_port()
    with start(*NSQFAST_RUN, "worker:app", f"--http-address=127.0.0.1:{port}") as program:
        rows = wait_healthy(port)["subscriptions"]
        assert [(row["topic"], row["channel"]) for row in rows] == [(topic, "c"), (topic, "thread")]
        publish("text")
        program.read_until("got text")
        eventually(lambda: left(broker, topic) == 0)
        metrics = request(("127.0.0.1", port), "GET", "/metrics")
        label = f'{{channel="c",topic="{topic}"}} 1.0'
        assert f"nsqfast_client_handler_duration_seconds_count{label}" in metrics.text
        assert f"nsqfast_client_message_age_seconds_count{label}" in metrics.text
        assert request(("127.0.0.1", port), "GET", "/other").status == 404
        assert program.end() == 0, program.text


def test_health_of_a_broker_that_is_away(start, dead, tmp_path):
    text = WORKER.replace('os.environ["NSQD"]', repr(dead))
    (tmp_path / "away.py").write_text(text)
    port = hold_port()
    with start(*NSQFAST_RUN, "away:app", f"--http-address=127.0.0.1:{port}") as program:
        program.read_until("handling")
        status, found = read_health(port)
        assert (status, found["status"]) == (503, "not connected")
        assert "refused" in found["subscriptions"][0]["errors"][dead]
        assert program.end() == 0, program.text


def test_a_signal_while_it_starts(start, tmp_path):
    """A lifespan that waits for ever is cancelled; the page says that it starts."""
    text = WORKER.replace('say(f"begin {os.getpid()}")', 'say("begin"); await asyncio.sleep(600)')
    (tmp_path / "waiting.py").write_text(text)
    port = hold_port()
    with start(*NSQFAST_RUN, "waiting:app", f"--http-address=127.0.0.1:{port}") as program:
        program.read_until("begin")
        status, found = read_health(port)
        assert (status, found["status"]) == (503, "starting")
        assert program.end() == 0, program.text


def test_a_lifespan_that_fails_is_shown_as_it_is(start, tmp_path):
    text = WORKER.replace('say(f"begin {os.getpid()}")', 'raise LookupError("no database")')
    (tmp_path / "failing.py").write_text(text)
    with start(*NSQFAST_RUN, "failing:app") as program:
        assert program.end(None) == 1
    assert program.lines[-1] == "LookupError: no database"


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_port_that_cannot_be_had(start, broker, is_taken):
    where = "{}:{}".format(*broker.tcp) if is_taken else "nonsense"
    with start(*NSQFAST_RUN, "worker:app", f"--http-address={where}") as program:
        assert program.end(None) == 1
    why = "bind: address already in use" if is_taken else "an address is <addr>:<port>"
    assert why in program.lines[-1]
    assert program.lines[-1].startswith("nsqfast-run: listen")
    assert "begin" not in program.text


def test_a_plain_install_has_all_but_metrics(tmp_path, topic, address):
    """One line in the log, and one on the page."""
    link_installed(tmp_path / "plain")
    (tmp_path / "worker.py").write_text(WORKER)
    port = hold_port()
    begin = (
        f"import sys; sys.path[:0] = [{str(tmp_path / 'plain')!r}, {str(tmp_path)!r}];"
        f"from nsqfast.app.main import main; sys.exit(main())"
    )
    words = (sys.executable, "-I", "-S", "-u", "-c", begin)
    environment = {"NSQD": address, "TOPIC": topic}
    flags = ("worker:app", f"--http-address=127.0.0.1:{port}")
    with Program(*words, *flags, cwd=tmp_path, **environment) as program:
        assert wait_healthy(port)["status"] == "ok"
        answer = request(("127.0.0.1", port), "GET", "/metrics")
        assert (answer.status, answer.text) == (
            501,
            "there are no metrics: pip install 'nsqfast[prometheus]'\n",
        )
        assert program.end() == 0, program.text
    assert "/metrics is off: pip install 'nsqfast[prometheus]'" in program.text


# -- the command line


def run(*words, cwd):
    environment = os.environ | {"NSQD": "127.0.0.1:1", "TOPIC": "t", "PYTHONPATH": str(ROOT)}
    return run_command(*NSQFAST_RUN, *words, cwd=cwd, env=environment)


@pytest.mark.parametrize(
    ("words", "status", "error"),
    [
        ([], 2, "which app? nsqfast-run MODULE:APP"),
        (["worker:app", "--worker=2"], 2, "(did you mean --workers?)"),
        (["worker:app", "other:app"], 2, 'unexpected word "other:app"'),
        (["--workers=0", "worker:app"], 1, "--workers is 0; it is 1 to 1000"),
        (["worker"], 1, "worker is no MODULE:APP, such as worker:app"),
        (["worker.py"], 1, "worker.py is no MODULE:APP: write worker:app"),
        (["./jobs/mail.py:mail"], 1, "./jobs/mail.py:mail is no MODULE:APP: write jobs.mail:mail"),
        (["other:app"], 1, "other:app: there is no module other, neither in "),
        (["worker.sub:app"], 1, "worker.sub:app: there is no module worker.sub, neither in "),
        (["worker:ap"], 1, "worker:ap is no such name, and an nsqfast.App is needed: it has app"),
        (["worker:os"], 1, "worker:os is a module, and an nsqfast.App is needed: it has app"),
        (["json:dumps"], 1, "json:dumps is a function, and an nsqfast.App is needed: there is no"),
    ],
)
def test_what_cannot_be_run(tmp_path, words, status, error):
    (tmp_path / "worker.py").write_text(WORKER)
    done = run(*words, cwd=tmp_path)
    assert done.returncode == status
    assert error in done.stderr
    assert "Traceback" not in done.stderr


def test_what_a_module_raises_is_shown_as_it_is(tmp_path):
    (tmp_path / "broken.py").write_text("import no_such_package\n")
    done = run("broken:app", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'no_such_package'\n")


@pytest.mark.parametrize("words", [["--help"], ["worker:app", "--help"], ["--version"]])
def test_help_and_version(tmp_path, words):
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("nsqfast " if words == ["--version"] else "Usage: nsqfast-run [")


def test_help_and_wrong_flags_do_not_load_the_client():
    code = "import sys, nsqfast.app.main; print('nsqfast.client' in sys.modules)"
    assert run_command(sys.executable, "-c", code).stdout == "False\n"


# -- several


def test_workers(broker, topic, start, publish):
    """The parent alone listens, and says how all of them are; a signal ends all in order."""
    port = hold_port()
    flags = ("--workers=3", f"--http-address=127.0.0.1:{port}")
    with start(*NSQFAST_RUN, "worker:app", *flags) as program:
        pids = pids_of(port)
        assert len(set(pids.values())) == 3
        for _ in range(30):
            publish("text")
        eventually(lambda: left(broker, topic) == 0)
        metrics = request(("127.0.0.1", port), "GET", "/metrics").text
        name = "nsqfast_client_handler_duration_seconds_count"
        counted = re.search(
            rf'^{name}{{channel="c",topic="{topic}"}} (\S+)$', metrics, re.MULTILINE
        )
        assert counted[1] == "30.0"
        assert program.end() == 0, program.text
    assert sorted(line for line in program.lines if line.startswith("end ")) == sorted(
        f"end {pid}" for pid in pids.values()
    )
    assert not any(map(psutil.pid_exists, pids.values()))


def test_ctrl_c_in_a_terminal_is_for_the_parent(broker, topic, start, publish):
    """It goes to the whole group of processes, and each handler may end."""
    publish("slow")
    with start(*NSQFAST_RUN, "worker:app", "--workers=2") as program:
        program.read_until("got slow")
        assert program.end(signal.SIGINT) == 0, program.text
    assert "slow is done" in program.lines
    assert "Traceback" not in program.text
    eventually(lambda: left(broker, topic) == 0)


@pytest.mark.parametrize("way", ["killed", "exits"])
def test_a_worker_that_ends_is_started_again(start, publish, broker, topic, way):
    """Also for its message, which another gets."""
    port = hold_port()
    flags = ("--workers=2", f"--http-address=127.0.0.1:{port}")
    with start(*NSQFAST_RUN, "worker:app", *flags) as program:
        before = pids_of(port)
        if way == "killed":
            os.kill(before[1], signal.SIGKILL)
            program.read_until("worker 1 was ended by SIGKILL; it is started again in 1 s")
        else:
            publish("exit")
            program.read_until(r"worker \d ended with status 3; it is started again in 1 s")
        after = wait_until(lambda: (found := pids_of(port)) != before and found)
        assert len(set(after.values()) - set(before.values())) >= 1
        program.end(signal.SIGTERM)


def test_workers_that_end_again_and_again(start, publish):
    """Each message comes back, a few times, so after the sixth end it is no accident."""
    for _ in range(20):
        publish("exit")
    with start(*NSQFAST_RUN, "worker:app", "--workers=2") as program:
        assert program.end(None) == 1, program.text
    assert program.lines[-1].endswith(
        "ended with status 3, and workers have ended 6 times in 60 s"
    ), program.text


def test_a_worker_that_cannot_start_ends_all(start):
    with start(*NSQFAST_RUN, "worker:nothing", "--workers=2") as program:
        assert program.end(None) == 1
    assert re.search("worker [12] ended with status 1 before it was ready", program.lines[-1])
    assert "worker:nothing is no such name" in program.text
    assert "Traceback" not in program.text


def test_workers_end_with_a_parent_that_is_killed(start):
    port = hold_port()
    flags = ("--workers=2", f"--http-address=127.0.0.1:{port}")
    with start(*NSQFAST_RUN, "worker:app", *flags) as program:
        pids = pids_of(port)
        program.end(signal.SIGKILL)
        eventually(lambda: not any(map(psutil.pid_exists, pids.values())))
    assert {f"end {pid}" for pid in pids.values()} <= set(program.lines)


# -- while one writes it


def test_reload(start, publish, tmp_path):
    """Another text, then a mistake, then the cure."""
    path = tmp_path / "worker.py"
    with start(*NSQFAST_RUN, "worker:app", "--reload") as program:
        program.read_until("handling")
        publish("1")
        program.read_until("^got 1 ")
        # Of the same size, and within the same second: Python's own look at a source would not tell.
        before = path.stat()
        path.write_text(WORKER.replace("got {text}", "now {text}"))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
        program.read_until(r"worker\.py has changed, starting again")
        program.read_until("^end ")  # the one before may still take a message until then
        publish("2")
        program.read_until("^now 2 ")
        path.write_text("def\n")
        program.read_until("SyntaxError")
        program.read_until(
            "worker 1 ended with status 1; it is started again after the next change"
        )
        path.write_text(WORKER)
        publish("3")
        program.read_until("^got 3 ")
        assert program.end(signal.SIGINT) == 0, program.text
    assert program.lines[-1].startswith(("end", "20"))


def test_reload_looks_at_own_sources(tmp_path):
    from nsqfast.app.supervisor import find_sources

    for name in ("a.py", "pkg/b.py", "text.txt", ".venv/c.py", "lib/site-packages/d.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    assert sorted(find_sources(tmp_path)) == [str(tmp_path / "a.py"), str(tmp_path / "pkg/b.py")]
