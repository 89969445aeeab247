"""/policies, policies.json and --policy-file: which limits hold for which queues."""

import json
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from nsqfast.errors import OptionsError
from nsqfast.nsqd.policies import Rules, parse, parse_all
from support.server import start_nsqd
from support.waiting import eventually
from support.web import get, post, request, topic_stats
from support.wire import Client

FILE = """
[[policy]]
name = "orders"
topic = "^orders$"
definition = { max_messages = %d }
"""


@pytest.fixture
def broker(tmp_path):
    with start_nsqd("nsqfast", tmp_path) as server:
        yield server


def put(broker, name, *, dry_run=False, **policy):
    target = f"/policies/{name}" + ("?dry_run=true" if dry_run else "")
    return request(broker.http, "PUT", target, json.dumps(policy).encode())


def make_topic(broker, topic, *channels):
    post(broker.http, f"/topic/create?topic={topic}")
    for channel in channels:
        post(broker.http, f"/channel/create?topic={topic}&channel={channel}")


def publish(broker, topic, count=1):
    return [post(broker.http, f"/pub?topic={topic}", b"x").status for _ in range(count)]


def limit_of(broker, topic, channel="c"):
    found = topic_stats(broker.http, topic)
    return (found["channels"][channel] if channel else found).get("policy")


def test_a_policy_holds_at_once_and_for_what_comes(broker):
    make_topic(broker, "orders", "c")
    answer = put(broker, "small", topic="^orders", definition={"max_messages": 2})
    effect = {"name": "small", "max_messages": 2}
    assert answer.json() == {
        "changed": 2,
        "dropping": 0,
        "changes": [
            {"topic": "orders", "before": None, "after": effect},
            {"topic": "orders", "channel": "c", "before": None, "after": effect},
        ],
    }
    make_topic(broker, "orders-later", "c")
    make_topic(broker, "other", "c")
    for topic in ("orders", "orders-later"):
        assert publish(broker, topic, 3) == [200, 200, 429]
        assert limit_of(broker, topic) == limit_of(broker, topic, "") == effect
    assert publish(broker, "other", 3) == [200] * 3
    assert limit_of(broker, "other") is None
    refused = post(broker.http, "/mpub?topic=orders", b"a\nb")
    assert (refused.status, refused.json()) == (429, {"message": "OVER_LIMIT"})
    with Client(broker.tcp) as client:
        client.command("PUB", "orders", body=b"x")
        assert client.read_error() == b"E_PUB_FAILED PUB failed over limit"
    assert (
        b'nsqd_publish_refused_total{reason="over_limit"} 4.0' in get(broker.http, "/metrics").body
    )


def test_the_oldest_are_dropped_and_counted(broker):
    make_topic(broker, "t", "c")
    put(broker, "newest", topic="t", definition={"max_messages": 2, "overflow": "drop_head"})
    assert publish(broker, "t", 5) == [200] * 5
    found = topic_stats(broker.http, "t")["channels"]["c"]
    assert (found["depth"], found["dropped_count"]) == (2, 3)
    assert b'nsq_dropped_total{reason="over_limit"} 3.0' in get(broker.http, "/metrics").body


def test_consumers_are_held(broker):
    make_topic(broker, "t", "c")
    put(broker, "slow", topic="t", channel="^c$", definition={"max_in_flight": 2})
    assert limit_of(broker, "t", "") is None
    publish(broker, "t", 5)
    with Client(broker.tcp) as client:
        client.sub("t", "c", 5)
        first = client.read_messages(2)
        client.fin(first[0])
        client.read_message()
        client.barrier()
        assert topic_stats(broker.http, "t")["channels"]["c"]["in_flight_count"] == 2


def test_what_fails_waits(broker):
    make_topic(broker, "t", "c")
    publish(broker, "t")
    definition = {"retry_min": "1h", "retry_multiplier": 1, "retry_jitter": 0}
    put(broker, "patient", topic="t", definition=definition)
    assert limit_of(broker, "t") == {"name": "patient", **definition}
    with Client(broker.tcp) as client:
        client.sub("t", "c", 1)
        client.command("REQ", client.read_message().id.decode(), "0")
        client.barrier()
        assert topic_stats(broker.http, "t")["channels"]["c"]["deferred_count"] == 1
        # What is given up now comes back at once.
        request(broker.http, "DELETE", "/policies/patient")
        publish(broker, "t")
        client.command("REQ", client.read_message().id.decode(), "0")
        assert client.read_message().attempts == 2


def test_a_channel_whose_deliveries_fail_is_paused(broker):
    make_topic(broker, "t", "c")
    publish(broker, "t", 10)
    definition = {"pause_when_failing": 0.9, "pause_time": "1h"}
    put(broker, "careful", topic="t", definition=definition)

    def said():
        found = topic_stats(broker.http, "t")["channels"]["c"]
        return found.get("paused_by_policy"), found.get("policy_pause_count"), found["paused"]

    assert said() == (None, None, False)
    with Client(broker.tcp) as client:
        client.sub("t", "c", 10)
        for message in client.read_messages(10):
            client.command("REQ", message.id.decode(), "3600000")
        client.barrier()
        assert said() == (True, 1, False)
        publish(broker, "t")
        client.barrier()
        assert topic_stats(broker.http, "t")["channels"]["c"]["depth"] == 1
        request(broker.http, "DELETE", "/policies/careful")
        assert client.read_message().attempts == 1
    assert said() == (None, None, False)


def test_a_trial_changes_nothing(broker, tmp_path):
    make_topic(broker, "t", "c")
    publish(broker, "t", 5)
    drop = {"max_messages": 2, "overflow": "drop_head"}
    answer = put(broker, "p", topic="t", definition=drop, dry_run=True)
    change = {"topic": "t", "channel": "c", "before": None, "after": {"name": "p", **drop}}
    assert answer.json()["changes"][1] == change | {"beyond": 3}
    assert answer.json()["dropping"] == 2
    assert get(broker.http, "/policies").json()["policies"] == []
    assert limit_of(broker, "t") is None
    assert topic_stats(broker.http, "t")["channels"]["c"]["depth"] == 5
    assert not (tmp_path / "policies.json").exists()
    assert put(broker, "p", topic="nothing", definition=drop, dry_run=True).json() == {
        "changed": 0,
        "dropping": 0,
        "changes": [],
    }


def test_policies_are_kept_and_removed(tmp_path):
    with start_nsqd("nsqfast", tmp_path) as broker:
        make_topic(broker, "t", "c")
        put(broker, "p", topic="t", priority=3, definition={"max_bytes": "10 KiB"})
        broker.kill()
    with start_nsqd("nsqfast", tmp_path) as broker:
        make_topic(broker, "t", "c")
        assert limit_of(broker, "t") == {"name": "p", "max_bytes": 10240}
        kept = {"name": "p", "topic": "t", "priority": 3, "definition": {"max_bytes": 10240}}
        assert get(broker.http, "/policies/p").json() == kept
        assert get(broker.http, "/policies").json() == {"policies": [kept], "read_only": False}
        removed = request(broker.http, "DELETE", "/policies/p?dry_run=1").json()
        assert removed["changed"] == 2
        assert limit_of(broker, "t")
        assert request(broker.http, "DELETE", "/policies/p").json() == removed
        assert limit_of(broker, "t") is None
        gone = request(broker.http, "DELETE", "/policies/p")
        assert (gone.status, gone.json()) == (404, {"message": "POLICY_NOT_FOUND"})
        assert get(broker.http, "/policies/p").status == 404
    assert json.loads((tmp_path / "policies.json").read_text()) == {"policies": []}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"policies":[{}]}', b"\xff", b"[" * 100_000]
)
def test_a_file_that_cannot_be_used_is_kept_aside(tmp_path, content):
    (tmp_path / "policies.json").write_bytes(content)
    with start_nsqd("nsqfast", tmp_path) as broker:
        answer = get(broker.http, "/ping")
        assert answer.status == 500
        assert answer.body.startswith(b"NOK - no policies hold: policies.json cannot be used")
        assert (tmp_path / "policies.json.bad").read_bytes() == content
        assert publish(broker, "t") == [200]
        put(broker, "p", topic="t", definition={"max_messages": 1})
        assert get(broker.http, "/ping").status == 200
        assert publish(broker, "t") == [429]
    assert "Traceback" not in broker.stderr


def test_what_a_kill_left_of_a_write_is_removed(tmp_path):
    left = tmp_path / "policies.json.123456.tmp"
    left.write_text("{")
    with start_nsqd("nsqfast", tmp_path) as broker:
        assert get(broker.http, "/ping").status == 200
        assert not left.exists()


def test_a_file_that_cannot_be_written_changes_nothing(broker, tmp_path):
    make_topic(broker, "t", "c")
    assert get(broker.http, "/policies").json()["policies"] == []
    (tmp_path / "policies.json").mkdir()
    answer = put(broker, "p", topic="t", definition={"max_messages": 1})
    assert (answer.status, answer.json()["message"]) == (500, "POLICIES_NOT_KEPT")
    assert limit_of(broker, "t") is None
    assert get(broker.http, "/policies").json()["policies"] == []


def test_those_of_a_file_are_read_again_and_not_changed_here(tmp_path):
    file = tmp_path / "policies.toml"
    file.write_text(FILE % 7)
    folder = tmp_path / "data"
    folder.mkdir()
    with start_nsqd("nsqfast", folder, f"--policy-file={file}") as broker:
        make_topic(broker, "orders", "c")
        assert limit_of(broker, "orders") == {"name": "orders", "max_messages": 7}
        assert get(broker.http, "/policies").json()["read_only"] is True
        answer = put(broker, "p", topic="t", definition={"max_messages": 1})
        assert (answer.status, answer.json()["message"]) == (409, "POLICIES_IN_FILE")
        file.write_text(FILE % 8)
        broker.process.send_signal(signal.SIGHUP)
        eventually(lambda: limit_of(broker, "orders")["max_messages"] == 8)
        file.write_text(FILE % 0)
        broker.process.send_signal(signal.SIGHUP)
        eventually(lambda: "max_messages has to be a number from 1" in broker.stderr)
        assert limit_of(broker, "orders")["max_messages"] == 8
    assert not (folder / "policies.json").exists()


def test_a_start_with_a_bad_file_is_refused(tmp_path):
    file = tmp_path / "policies.toml"
    for content in (FILE % 0, "x =", '[[policy]]\nname = "a"\n' * 2):
        file.write_text(content)
        with pytest.raises(AssertionError, match="failed to instantiate nsqd - --policy-file: "):
            start_nsqd("nsqfast", tmp_path, f"--policy-file={file}")
    with pytest.raises(AssertionError, match="cannot be read - "):
        start_nsqd("nsqfast", tmp_path, f"--policy-file={tmp_path}/none")


def test_many_at_once_and_many_topics(broker):
    for number in range(300):
        make_topic(broker, f"t{number}", "c")
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(
                lambda number: put(
                    broker,
                    f"p{number}",
                    topic="^t",
                    priority=number,
                    definition={"max_messages": 1 + number},
                ),
                range(24),
            )
        )
    assert [answer.status for answer in answers] == [200] * 24
    assert {limit_of(broker, f"t{number}")["name"] for number in range(300)} == {"p23"}
    assert len(get(broker.http, "/policies").json()["policies"]) == 24


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ([], "an object"),
        ({}, "definition"),
        ({"definition": {}}, "some of max_messages"),
        ({"definition": {"max_msgs": 1}}, "'max_msgs' is not known"),
        ({"definition": {"max_messages": 1}, "pattern": ".*"}, "'pattern' is not known"),
        ({"definition": {"max_messages": 1}, "name": "another"}, "another"),
        ({"definition": {"max_messages": "1"}}, "max_messages has to be a number"),
        ({"definition": {"max_messages": True}}, "max_messages has to be a number"),
        ({"definition": {"max_messages": -1}}, "max_messages has to be a number"),
        ({"definition": {"max_bytes": "10 parsecs"}}, "10GiB"),
        ({"definition": {"max_bytes": "1e3"}}, "10GiB"),
        ({"definition": {"max_rate": 0}}, "per second"),
        ({"definition": {"pause_when_failing": 0}}, "a share above 0"),
        ({"definition": {"pause_when_failing": 50}}, "a share above 0"),
        ({"definition": {"pause_time": "1m"}}, "give pause_when_failing, too"),
        ({"definition": {"pause_when_failing": 1, "pause_window": "1 minute"}}, "a time from"),
        ({"definition": {"retry_min": 5}}, "a time from"),
        ({"definition": {"retry_min": "5"}}, "a time from"),
        ({"definition": {"retry_min": "-5s"}}, "a time from"),
        ({"definition": {"retry_min": "1us"}}, "a time from"),
        ({"definition": {"retry_min": "2161h"}}, "a time from"),
        ({"definition": {"retry_min": "1ms" * 11}}, "a time from"),
        ({"definition": {"retry_max": "5s"}}, "give retry_min, too"),
        ({"definition": {"retry_min": "5s", "retry_max": "4s"}}, "at least retry_min"),
        ({"definition": {"retry_min": "5s", "retry_multiplier": 0.5}}, "from 1 to 1000"),
        ({"definition": {"retry_min": "5s", "retry_multiplier": float("nan")}}, "from 1 to 1000"),
        ({"definition": {"retry_min": "5s", "retry_jitter": 2}}, "from 0 to 1"),
        ({"definition": {"max_rate": float("inf")}}, "per second"),
        ({"definition": {"overflow": "drop_head"}}, "give one of them"),
        ({"definition": {"max_messages": 1, "overflow": "explode"}}, "reject_publish or drop_head"),
        ({"topic": "(", "definition": {"max_messages": 1}}, "topic is no expression"),
        ({"topic": "(?=x)", "definition": {"max_messages": 1}}, "topic is no expression"),
        ({"topic": "x" * 257, "definition": {"max_messages": 1}}, "256 characters"),
        ({"channel": 3, "definition": {"max_messages": 1}}, "channel has to be an expression"),
        ({"priority": "high", "definition": {"max_messages": 1}}, "priority"),
    ],
)
def test_what_is_wrong_with_a_policy_is_said_in_a_line(policy, reason):
    with pytest.raises(OptionsError) as caught:
        parse(policy, "p")
    text = str(caught.value)
    assert reason in text
    assert "\n" not in text


@pytest.mark.parametrize("name", ["", "a/b", "a b", "x" * 65, 3])
def test_names_are_those_of_topics(name):
    with pytest.raises(OptionsError, match="name of a policy"):
        parse_all({"policies": [{"name": name, "definition": {"max_rate": 1}}]}, "policies")


def test_bad_requests(broker):
    for body, status in ((b"x", 400), (b"[]", 400), (b"{}", 400), (b" " * 70_000, 413)):
        answer = request(broker.http, "PUT", "/policies/p", body)
        assert (answer.status, answer.json()["message"]) == (status, "INVALID_POLICY")
    good = {"topic": "t", "definition": {"max_rate": 1}}
    assert (
        request(broker.http, "PUT", "/policies/p?dry_run=maybe", json.dumps(good).encode()).status
        == 400
    )
    assert "Traceback" not in broker.stderr


def test_the_one_with_the_highest_priority_holds_as_a_whole():
    def rule(name, topic, channel, priority):
        given = {"topic": topic, "priority": priority, "definition": {"max_messages": 1}}
        return parse(given if channel is None else given | {"channel": channel}, name)

    all_of_them = [
        rule("base", "", None, -1),
        rule("b", "^orders", None, 0),
        rule("a", "^orders", None, 0),
        rule("bill", "^orders", "^bill", 5),
    ]
    rules = Rules({each.name: each for each in all_of_them}, None)

    def name_of(topic, channel):
        return rules.find(topic, channel).name

    assert name_of("anything", None) == name_of("anything", "bill") == "base"
    assert name_of("orders", None) == name_of("orders.eu", "c") == "a"
    assert name_of("orders", "billing") == "bill"
    assert Rules({}, None).find("t", "c") is None
