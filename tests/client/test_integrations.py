"""nsqfast inside other frameworks, and as a service: real processes that get real requests and signals."""

import csv
import json
import signal
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest

from nsqfast.client.sync import Consumer
from support.programs import EXAMPLES, Program, command, left, publish
from support.waiting import eventually
from support.web import request, topic_stats

pytestmark = pytest.mark.slow

BOTH_SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
WORKER_CONCURRENCY = 16  # as the example has it


def take_bodies(address, topic, count):
    with Consumer(topic, "reader", nsqd=address) as consumer:
        return [take_body(consumer) for _ in range(count)]


def take_body(consumer):
    message = consumer.get(10)
    message.finish()
    return message.body


def in_flight(broker, topic, channel):
    return topic_stats(broker.http, topic)["channels"][channel]["in_flight_count"]


# -- FastAPI


class Web(Program):
    """A program with a web server; its address is read from what it prints."""

    def __init__(self, *command, **environment):
        super().__init__(*command, **environment)
        try:
            self.address = ("127.0.0.1", int(self.read_until(r"http://127\.0\.0\.1:(\d+)")[1]))
        except BaseException:
            self.__exit__()
            raise

    def post(self, target, body, kind):
        return request(self.address, "POST", target, body.encode(), {"Content-Type": kind})


def start_fastapi(nsqd, topic):
    app = ["-m", "uvicorn", "--port=0", f"--app-dir={EXAMPLES}", "fastapi_app:app"]
    return Web(sys.executable, *app, NSQD=nsqd, TOPIC=topic)


def post_event(web, **event):
    return web.post("/events", json.dumps(event), "application/json")


def test_fastapi_publishes_and_consumes(broker, address, topic):
    """fastapi_app.py under uvicorn."""
    with start_fastapi(address, topic) as web:
        for user in range(3):
            assert post_event(web, user=user, kind="login").status == 202
        assert post_event(web, user="nobody", kind="login").status == 422
        handled = {web.read_until(r"^user (\d): login$")[1] for _ in range(3)}
        assert handled == {"0", "1", "2"}
        eventually(lambda: left(broker, topic, "app") == 0)
        assert post_event(web, user=3, kind="logout").status == 202
        eventually(lambda: in_flight(broker, topic, "app") == 1)
        assert web.end() == -signal.SIGTERM, web.text  # as uvicorn ends after an orderly stop
        assert "user 3: logout" in web.lines  # its handler had begun
        assert "Application shutdown complete" in web.text
        assert "Traceback" not in web.text
    assert topic_stats(broker.http, topic)["message_count"] == 4
    eventually(lambda: left(broker, topic, "app") == 0)


# -- Django


def start_django(nsqd, topic, database):
    server = command("django_orders.py", "runserver", "--noreload", "127.0.0.1:0")
    return Web(*server, NSQD=nsqd, TOPIC=topic, DATABASE=str(database))


def post_order(web, **order):
    return web.post("/", urlencode(order), "application/x-www-form-urlencoded")


def stored_orders(database):
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute("select item, quantity from orders order by id").fetchall()


def test_django_publishes_what_is_committed(broker, address, topic, tmp_path):
    """django_orders.py under its own server."""
    database = tmp_path / "orders.sqlite3"
    with start_django(address, topic, database) as web:
        assert post_order(web, item="tea", quantity=2).status == 201
        assert post_order(web, item="gold", quantity=11).status == 409
        assert post_order(web, item="tea", quantity="many").status == 400
        assert post_order(web, item="jam", quantity=10).status == 201
        assert web.end(signal.SIGINT) == 0, web.text
    assert stored_orders(database) == [("tea", 2), ("jam", 10)]
    assert topic_stats(broker.http, topic)["message_count"] == 2
    tea, jam = map(json.loads, take_bodies(address, topic, 2))
    assert tea == {"order": 1, "item": "tea", "quantity": 2}
    assert (jam["item"], jam["quantity"]) == ("jam", 10)


# -- an App


def test_app_worker_buries_what_is_no_order(broker, address, topic):
    """app_worker.py under nsqfast-run: its folder is the current one."""
    publish(address, topic, b"no order", b'{"sku": "gold"}', b'{"sku": "tea"}')
    words = ("-m", "nsqfast.app.main", "app_worker:app")
    environment = {"NSQD": address, "TOPIC": topic, "CHANNEL": "c"}
    with Program(sys.executable, *words, cwd=EXAMPLES, **environment) as worker:
        worker.read_until("^bill: 3 for tea$")
        eventually(lambda: left(broker, topic) == 0)
        assert worker.end() == 0, worker.text
    assert set(take_bodies(address, f"{topic}-dead", 2)) == {b"no order", b'{"sku": "gold"}'}
    assert "PayloadError: the body is no Order: JSON is malformed" in worker.text
    assert "KeyError: 'gold'" in worker.text


# -- services


def job(name, seconds=0.0):
    return json.dumps({"name": name, "seconds": seconds}).encode()


@BOTH_SIGNALS
def test_worker_ends_in_order(broker, address, topic, number):
    """worker.py: what runs when the signal comes is done, what waits stays at nsqd."""
    waiting = 4
    names = {f"job-{n}" for n in range(WORKER_CONCURRENCY + waiting)}
    publish(address, topic, *[job(name, 1.0) for name in names])
    with Program(*command("worker.py", topic, "c", "--nsqd", address)) as worker:
        begun = {worker.read_until(r"begun: (\S+)")[1] for _ in range(WORKER_CONCURRENCY)}
        assert "done" not in worker.text
        assert worker.end(number) == 0, worker.text
        done = {line.removeprefix("done: ") for line in worker.lines if line.startswith("done: ")}
    assert done == begun
    eventually(lambda: left(broker, topic) == waiting)
    with Program(*command("worker.py", topic, "c", "--nsqd", address)) as worker:
        rest = {worker.read_until(r"done: (\S+)")[1] for _ in range(waiting)}
        assert worker.end(number) == 0, worker.text
    assert rest == names - done


def test_tasks(broker, address):
    """tasks.py: called by a program and by a shell, done by one worker after the other."""
    caller = "from tasks import add; add.delay(2, 3); add.delay(b=1, a=40)"
    here = {"NSQD": address, "PYTHONPATH": str(EXAMPLES)}
    with Program(*command("tasks.py", "worker", "math"), **here) as worker:
        with Program(sys.executable, "-c", caller, **here) as calling:
            assert calling.end(None) == 0, calling.text
        assert worker.read_until(r"^2 \+")[0]
        assert worker.read_until(r"^40 \+")[0]
        assert worker.end(signal.SIGINT) == 0, worker.text
    assert [line for line in worker.lines if "=" in line] == ["2 + 3 = 5", "40 + 1 = 41"]
    assert worker.lines[-1] == "calls finished: 2"
    with Program(*command("tasks.py", "add", 1, 2), **here) as calling:
        assert calling.end(None) == 0, calling.text
    publish(address, "math", b'{"task": "unheard-of", "args": [], "kwargs": {}}')
    with Program(*command("tasks.py", "worker", "math"), **here) as worker:
        worker.read_until(r"^1.0 \+ 2.0 = 3.0")
        worker.read_until("KeyError: 'unheard-of'")
        assert worker.end() == 0, worker.text
    eventually(lambda: left(broker, "math", "workers") == 1)


def test_task_group_ends_when_one_fails(broker, address, topic):
    """task_group.py: the message that ended it, and whatever else was in flight, is nsqd's again."""
    with Program(*command("task_group.py", topic, "--nsqd", address)) as program:
        publish(address, topic, b"20", b"-40")
        assert [program.read_until(r"^(\S+)$")[1] for _ in range(2)] == ["68.0", "-40.0"]
        publish(address, topic, b"warm")
        assert program.end(None) == 1, program.text
    assert program.lines[-1:] == ["ended: could not convert string to float: b'warm'"], program.text
    assert left(broker, topic, "task-group") == 1
    assert in_flight(broker, topic, "task-group") == 0
    eventually(lambda: left(broker, f"{topic}-fahrenheit", "task-group") == 0)


# -- pandas


def requeue_one(address, topic):
    with Consumer(
        topic, "c", nsqd=address, backoff="nsq"
    ) as consumer:  # after which no other one comes
        consumer.get(10).requeue(0)


def test_pandas_frame(broker, address, topic, tmp_path):
    """pandas_frame.py: the sums in its file are those of the messages."""
    path = tmp_path / "sums.csv"
    amounts = [b'{"amount": %d.5}' % number for number in range(3000)]
    bodies = [*amounts, b"no JSON", b'{"amount": null}', b"[]"]
    before = datetime.now(UTC) - timedelta(minutes=1)
    for start in range(0, len(bodies), 1000):
        publish(address, topic, *bodies[start : start + 1000])
    requeue_one(address, topic)
    words = [topic, "c", "--nsqd", address, "--count", len(bodies), "--output", path]
    with Program(*command("pandas_frame.py", *words)) as program:
        assert program.end(None) == 0, program.text
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert all(before < datetime.fromisoformat(row["minute"]) <= datetime.now(UTC) for row in rows)
    sums = {name: sum(float(row[name]) for row in rows) for name in rows[0] if name != "minute"}
    assert sums == {
        "messages": len(bodies),
        "retries": 1,
        "bytes": sum(map(len, bodies)),
        "amount": sum(number + 0.5 for number in range(3000)),
        "broken": 3,
    }
    assert program.lines[-1] == f"messages added to {path}: {len(bodies)}"
    eventually(lambda: left(broker, topic) == 0)
