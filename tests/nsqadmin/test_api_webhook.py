"""What the webhook is told of each action: the same from both nsqadmin."""

import json

import pytest

from support.admin import LiveCluster, wait_until
from support.destination import Destination
from support.web import request

pytestmark = [pytest.mark.go, pytest.mark.slow]

ACTIONS = [
    ("POST", "/api/topics", b'{"topic":"fresh"}', 1),
    ("POST", "/api/topics", b'{"topic":"both","channel":"c"}', 2),
    ("POST", "/api/topics/t", b'{"action":"pause"}', 1),
    ("POST", "/api/topics/t?x=%23", b'{"action":"unpause"}', 1),
    ("POST", "/api/topics/t", b'{"action":"empty"}', 1),
    ("POST", "/api/topics/t/c", b'{"action":"pause"}', 1),
    ("POST", "/api/topics/t/c", b'{"action":"unpause"}', 1),
    ("POST", "/api/topics/t/c", b'{"action":"empty"}', 1),
    ("POST", "/api/topics/nobody", b'{"action":"pause"}', 1),
    ("DELETE", "/api/nodes/NODE", b'{"topic":"gone"}', 1),
    ("DELETE", "/api/topics/t/c%23ephemeral", None, 1),
    ("DELETE", "/api/topics/t", None, 1),
]
HEADERS = {"Authorization": "Basic YW5uOnNlY3JldA==", "X-Scheme": "https", "User-Agent": "curl/8"}


def told_by(kind, cluster):
    """Every notification of one nsqadmin, action by action."""
    with Destination() as hook:
        flag = f"--notification-http-endpoint=http://127.0.0.1:{hook.port}/hook"
        with cluster.admin(kind, flag) as admin:
            found = []
            for method, target, body, count in ACTIONS:
                for topic in ("t", "gone"):
                    cluster.make(topic, "c", "c#ephemeral")
                known = len(hook.requests) + count
                node = "{}:{}".format(*cluster.nsqds[0].http)
                request(admin.http, method, target.replace("NODE", node), body, HEADERS)
                wait_until(lambda known=known: len(hook.requests) >= known, f"{kind} {target}")
                found.append(
                    sorted((plain(one, admin) for one in hook.requests[known - count :]), key=str)
                )
            assert len(hook.requests) == sum(one[3] for one in ACTIONS)
            return found


def plain(asked, admin):
    """Without what must differ."""
    assert asked.header("Content-Type") == "application/json"
    body = json.loads(asked.body)
    assert isinstance(body.pop("timestamp"), int)
    assert body.pop("remote_ip").startswith("127.0.0.1:")
    body["url"] = body["url"].replace("{}:{}".format(*admin.http), "HERE")
    return asked.method, asked.path, body


def test_both_tell_the_same(tmp_path):
    with LiveCluster(tmp_path, ["nsqfast"], ["nsqfast"]) as cluster:
        ours, theirs = (told_by(kind, cluster) for kind in ("nsqfast", "go"))
    assert ours == theirs
