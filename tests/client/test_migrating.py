"""docs/MIGRATING.md: nothing of the other libraries is missing, what it names of ours exists, its programs run."""

import ast
import importlib.util
import inspect
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import nsq
import pytest

import nsqfast.client
from nsqfast.client import Config
from nsqfast.client.sync import Producer
from nsqfast.wire.gotext import parse_duration_ns
from support.server import ROOT, STOP_SECONDS_MAX, start_nsqd, start_nsqlookupd
from support.waiting import eventually
from support.web import get, topic_stats

TEXT = (ROOT / "docs" / "MIGRATING.md").read_text(encoding="utf-8")
SNIPPET = re.compile(
    r"^(pynsq|ansq|go-nsq|nsqfast):\n\n```(?:python|go)\n(.*?)^```", re.MULTILINE | re.DOTALL
)
DURATION = re.compile(r"timeout|interval|duration|delay")
PHRASES = {"async for", "async with"}

with_ansq = pytest.mark.skipif(
    importlib.util.find_spec("ansq") is None, reason="ansq is not installed: pip install ansq"
)


def cells_of(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def read_tables():
    """(header, rows) of each table; a row is a list of cells."""
    for block in re.findall(r"(?:^\|.*\n)+", TEXT, re.MULTILINE):
        header, _, *rows = map(cells_of, block.splitlines())
        assert all(len(row) == len(header) for row in rows), block
        yield header, rows


def spans(cell):
    return re.findall(r"`([^`]+)`", cell)


def rows_of(title):
    """By each name that stands first in a code span of the first cell; the row's other cells, of all such rows."""
    (rows,) = [rows for header, rows in read_tables() if header[0] == title]
    found = {}
    for first, *others in rows:
        for span in spans(first):
            name = re.match(r"\w+", span)[0]
            found.setdefault(name, []).append(others)
    return found


def parameters(function):
    return {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "self"
    }


def members(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


# -- what the others have


def pynsq_names():
    return {
        "`nsq.Reader(...)`": parameters(nsq.Reader),
        "`nsq.Writer(...)`": parameters(nsq.Writer),
        "`nsq.AsyncConn(...)`": parameters(nsq.AsyncConn),
        "members of `nsq.Reader`": members(nsq.Reader),
        "members of `nsq.Writer`": members(nsq.Writer),
        "members of `nsq.Message`": members(nsq.Message) | set(parameters(nsq.Message)),
    }


def ansq_names():
    import ansq
    from ansq.tcp.connection import NSQConnection
    from ansq.tcp.reader import Reader
    from ansq.tcp.types import NSQMessage, NSQMessageSchema
    from ansq.tcp.writer import Writer

    schema = NSQMessageSchema(timestamp=1, attempts=1, id_=b"1", body=b"1", frame_type=2)
    message = NSQMessage(schema, SimpleNamespace(options=ansq.ConnectionOptions()))
    features = dict.fromkeys(("client_id", "hostname", "user_agent"), "")  # these are the machine's
    return {
        "`ansq.open_connection(...)`": parameters(ansq.open_connection),
        "`ansq.create_writer(...)`": parameters(ansq.create_writer),
        "`ansq.create_reader(...)`": parameters(ansq.create_reader),
        "`ansq.ConnectionOptions(...)`": parameters(ansq.ConnectionOptions),
        "`ansq.ConnectionFeatures(...)`": parameters(ansq.ConnectionFeatures) | features,
        "members of an ansq reader": members(Reader),
        "members of an ansq writer": members(Writer),
        "members of an ansq connection": members(NSQConnection),
        "members of an ansq message": members(message),
    }


def check_names(theirs):
    for title, names in theirs.items():
        assert rows_of(title).keys() == set(names), title


def seconds_in(cell):
    """Of the first key that ends in _s."""
    return float(re.search(r"\w_s=([\d.]+)", cell)[1])


def check_units(theirs):
    """A number of theirs has its default beside it; a duration its unit, and its counterpart the same in seconds."""
    durations = 0
    for title, defaults in theirs.items():
        if not isinstance(defaults, dict):
            continue
        rows = rows_of(title)
        for name, default in defaults.items():
            (unit, ours), *_ = rows[name]
            if isinstance(default, int | float) and not isinstance(default, bool):
                assert str(default) in unit, (title, name)
            if DURATION.search(name):
                durations += 1
                assert re.match(r"(milli)?seconds, ", unit), (title, name)
                assert re.search(r"\w_s=|seconds", ours), (title, name)
                if isinstance(default, int | float) and not ours.startswith("None"):
                    per_second = 1000 if unit.startswith("milli") else 1
                    assert seconds_in(ours) == default / per_second, (title, name)
    return durations


def test_pynsq_is_there_with_all_its_names():
    check_names(pynsq_names())
    assert check_units(pynsq_names()) > 10


@with_ansq
def test_ansq_is_there_with_all_its_names():
    check_names(ansq_names())
    assert check_units(ansq_names()) == 3


def test_every_key_of_go_nsq_is_there():
    """They are the fields of Config; a duration stands there in seconds."""
    rows = rows_of("key of go-nsq")
    keys = {name for name in parameters(Config) if not name.endswith("_s")}
    assert rows.keys() == keys | {"tls_config"}
    for key, [(kind, ours)] in rows.items():
        is_duration = f"{key}_s" in parameters(Config)
        assert is_duration == kind.startswith("duration"), key
        assert is_duration == (f"{key}_s=" in ours), key
        assert key == "tls_config" or f"{key}=" in ours or is_duration, key
        if is_duration and (default_ns := parse_duration_ns(re.findall(r"\w+", kind)[1])):
            assert seconds_in(ours) == default_ns / 1e9, key


# -- what of ours is named

KINDS = {
    name.lower(): getattr(nsqfast.client, name)
    for name in ("Producer", "Consumer", "Message", "Batch", "Config")
}
NAMES = vars(nsqfast.client) | KINDS | {"nsqfast": nsqfast, "bytes": bytes}
STATS = (nsqfast.client.ConsumerStats, nsqfast.client.ProducerStats)
WORDS = set().union(
    *map(members, [*KINDS.values(), *STATS]),
    parameters(Config),
    parameters(nsqfast.client.Consumer.run),
)


def thing_of(node):
    """What an expression names; an object stands as its class."""
    match node:
        case ast.Name(id=name):
            return NAMES[name]
        case ast.Attribute(value=value, attr=name):
            return getattr(thing_of(value), name)
        case ast.Call(func=function):
            return inspect.signature(thing_of(function)).return_annotation
        case ast.Await(value=value) | ast.Expr(value=value):
            return thing_of(value)
    return None


def check_call(call):
    known = list(parameters(thing_of(call.func)))
    for keyword in call.keywords:
        assert keyword.arg in known
    for place, argument in enumerate(call.args):
        if isinstance(argument, ast.Name):
            assert known[place] == argument.id


def check_span(span):
    """Every name in it is ours: a member, a parameter, or an argument under its parameter's name."""
    if span in PHRASES or span in WORDS:
        return
    tree = ast.parse(span)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            check_call(node)
    (statement,) = tree.body
    thing_of(statement)


OURS = sorted(
    {
        span
        for header, rows in read_tables()
        for *_, ours in rows
        for span in spans(ours)
        if header[-1] == "nsqfast"
    }
)


def test_the_last_column_is_ours():
    assert all(header[-1] == "nsqfast" for header, _ in read_tables())
    assert all(row[-1] for _, rows in read_tables() for row in rows)
    assert len(OURS) > 100


@pytest.mark.parametrize("span", OURS)
def test_it_names_what_there_is(span):
    check_span(span)


# -- its programs


def snippets(section):
    (text,) = re.findall(rf"^### {section}\n(.*?)(?=^##)", TEXT, re.MULTILINE | re.DOTALL)
    found = dict(SNIPPET.findall(text))
    assert found.keys() == {"pynsq", "ansq", "go-nsq", "nsqfast"}
    return found


@contextmanager
def running(section, library, **places):
    """One of the programs, with our addresses and topic in it; gives the line that it prints."""
    text = snippets(section)[library]
    for before, after in (("127.0.0.1:4150", "nsqd"), ("127.0.0.1:4161", "nsqlookupd")):
        text = text.replace(before, places.get(after, before))
    text = text.replace('"topic"', f'"{places["topic"]}"')
    command = [sys.executable, "-u", "-c", text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().rstrip(), process
        finally:
            process.kill()  # pynsq looks at SIGTERM at its next timer, seconds later


LIBRARIES = ["pynsq", pytest.param("ansq", marks=with_ansq), "nsqfast"]


@pytest.fixture(scope="module")
def lookup():
    with start_nsqlookupd("nsqfast") as server:
        yield server


@pytest.fixture(scope="module")
def broker(lookup, tmp_path_factory):
    """A broker that reports to an nsqlookupd."""
    flags = ["--lookupd-tcp-address={}:{}".format(*lookup.tcp), "--broadcast-address=127.0.0.1"]
    with start_nsqd("nsqfast", tmp_path_factory.mktemp("nsqd"), *flags) as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_publish(broker, address, topic, library):
    with running("Publish", library, nsqd=address, topic=topic) as (line, _):
        assert line == "published"
    assert topic_stats(broker.http, topic)["message_count"] == 1


def publish(address, topic):
    with Producer(address) as producer:
        producer.publish(topic, b"body")


def is_finished(broker, topic):
    channel = topic_stats(broker.http, topic)["channels"]["channel"]
    return channel["depth"] + channel["in_flight_count"] + channel["deferred_count"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_consume_with_a_handler(broker, address, topic, library):
    publish(address, topic)
    with running("Consume with a handler", library, nsqd=address, topic=topic) as (line, process):
        assert line == "b'body'"
        eventually(lambda: is_finished(broker, topic))
        if library == "nsqfast":
            process.terminate()
            assert process.wait(STOP_SECONDS_MAX) == 0


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_consume_with_nsqlookupd(broker, lookup, address, topic, library):
    publish(address, topic)
    eventually(lambda: get(lookup.http, f"/lookup?topic={topic}").json().get("producers"))
    places = {"nsqlookupd": "{}:{}".format(*lookup.http), "topic": topic}
    with running("Consume with nsqlookupd", library, **places) as (line, _):
        assert line == "b'body'"
        eventually(lambda: is_finished(broker, topic))


@pytest.mark.skipif(shutil.which("gofmt") is None, reason="gofmt is not installed")
def test_the_programs_in_go_are_go():
    for section in ("Publish", "Consume with a handler", "Consume with nsqlookupd"):
        text = snippets(section)["go-nsq"]
        formatted = subprocess.run(
            ["gofmt"], input=text, capture_output=True, text=True, check=True
        )
        assert formatted.stdout == text
