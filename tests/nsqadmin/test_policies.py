"""The policy of a channel on its page: of a real node, and of one that lies about it."""

import pytest

from nsqfast.nsqadmin.options import Options
from support.access import Running
from support.admin import text_of
from support.fake_stats import FakeStats
from support.server import start_nsqd
from support.waiting import wait_until
from support.web import get, post, request

HOSTILE = '<img src=x onerror="alert(1)">' * 99


def start_admin(address):
    options = Options(
        http_address="127.0.0.1:0", nsqd_http_addresses=[address], poll_interval_ns=100_000_000
    )
    return Running(options)


def page(admin):
    return get(admin.http, "/topics/t/c").body.decode()


@pytest.mark.slow
def test_a_real_node(tmp_path):
    with (
        start_nsqd("nsqfast", tmp_path) as broker,
        start_admin(text_of(broker.http)) as admin,
    ):
        post(broker.http, "/topic/create?topic=t")
        post(broker.http, "/channel/create?topic=t&channel=c")
        wait_until(lambda: get(admin.http, "/topics/t/c").status == 200, "the channel is known")
        assert "Policy" not in page(admin)
        body = (
            b'{"topic":"t","definition":{"max_messages":2,"overflow":"drop_head","max_rate":0.5}}'
        )
        assert request(broker.http, "PUT", "/policies/small", body).status == 200
        post(broker.http, "/mpub?topic=t", b"1\n2\n3")
        shown = "small: max_messages 2, overflow drop_head, max_rate 0.5; 1 dropped"
        wait_until(lambda: shown in page(admin), "the policy is shown")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "is_valid"),
    [
        ({"name": HOSTILE, "overflow": HOSTILE, "max_rate": 1e300, "more": [HOSTILE]}, True),
        ({"name": 7}, False),
        ({"max_messages": 1 << 60}, False),
        ([], False),
    ],
)
def test_a_node_that_lies_about_it(policy, is_valid):
    channel = {"channel_name": "c", "policy": policy, "dropped_count": -1}
    said = {"version": "1.3.0", "health": "OK", "start_time": 1}
    said["topics"] = [{"topic_name": "t", "channels": [channel]}]
    with (
        FakeStats(lambda path, _: said if path == "/stats" else None) as liar,
        start_admin(liar.address) as admin,
    ):
        wait_until(lambda: get(admin.http, "/topics/t/c").status == 200, "the channel is known")
        wait_until(lambda: ("Policy" in page(admin)) == is_valid, "the policy is shown, or not")
        assert "<img" not in page(admin)
        assert ("&lt;img" in page(admin)) == is_valid
