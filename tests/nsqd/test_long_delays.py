"""Delays of weeks to a hundred years: 32 bits of milliseconds are 49.7 days, 64 bits of nanoseconds 292 years."""

import pytest

from nsqfast.errors import OptionsError
from nsqfast.nsqd.options import DEFER_NS_MAX, DURATION_NS_MAX, parse, validate
from support.server import start_nsqd
from support.web import post, topic_stats
from support.wire import Client

MS = 1_000_000
WRAPPED_MS = 1 << 32  # as 32 bits: no delay at all
CENTURY_MS = DURATION_NS_MAX // MS
FLAGS = ("--max-req-timeout=876600h", "--mem-queue-size=100")


@pytest.mark.parametrize("has_channel", [True, False])
def test_deferred_for_more_than_49_days(tmp_path, has_channel):
    delays_ms = [WRAPPED_MS, WRAPPED_MS + 1, 50 * 86_400_000, CENTURY_MS]
    with start_nsqd("nsqfast", tmp_path, *FLAGS) as server, Client(server.tcp) as client:
        if has_channel:
            post(server.http, "/topic/create?topic=t")
            post(server.http, "/channel/create?topic=t&channel=c")
        for delay_ms in delays_ms:
            assert client.ask("DPUB", "t", str(delay_ms), body=b"%d" % delay_ms) == b"OK"
        assert post(server.http, f"/pub?topic=t&defer={WRAPPED_MS}", b"http").status == 200
        client.ask("DPUB", "t", "50", body=b"soon")
        client.sub("t", "c", 10)
        message = client.read_message()
        assert message.body == b"soon"
        client.fin(message)
        client.barrier()
        channel = topic_stats(server.http, "t")["channels"]["c"]
        assert (channel["deferred_count"], channel["depth"]) == (len(delays_ms) + 1, 0)


def test_requeued_for_more_than_49_days(tmp_path):
    with start_nsqd("nsqfast", tmp_path, *FLAGS) as server, Client(server.tcp) as client:
        client.sub("t", "c", 10)
        for delay_ms in (WRAPPED_MS, CENTURY_MS, CENTURY_MS + 1):
            client.pub("t", b"x")
            client.command("REQ", client.read_message().id, str(delay_ms))
        client.pub("t", b"last")
        assert client.read_message().body == b"last"
        assert topic_stats(server.http, "t")["channels"]["c"]["deferred_count"] == 3


def test_max_defer_is_the_limit_of_dpub_req_and_http(tmp_path):
    flags = ("--max-req-timeout=1s", "--max-defer=2160h")
    longest_ms = DEFER_NS_MAX // MS
    with start_nsqd("nsqfast", tmp_path, *flags) as server, Client(server.tcp) as client:
        client.sub("t", "c", 10)
        assert client.ask("DPUB", "t", str(longest_ms), body=b"dpub") == b"OK"
        assert post(server.http, f"/pub?topic=t&defer={longest_ms}", b"http").status == 200
        refused = post(server.http, f"/pub?topic=t&defer={longest_ms + 1}", b"http")
        assert (refused.status, b"INVALID_DEFER" in refused.body) == (400, True)
        client.pub("t", b"x")
        client.command("REQ", client.read_message().id, str(longest_ms))
        client.pub("t", b"last")
        assert client.read_message().body == b"last"
        assert topic_stats(server.http, "t")["channels"]["c"]["deferred_count"] == 3
        client.command("DPUB", "t", str(longest_ms + 1), body=b"late")
        limit = b"out of range 0-%d" % longest_ms
        assert client.read_error() == b"E_INVALID DPUB timeout %d %s" % (longest_ms + 1, limit)


def test_max_defer_has_a_limit_of_its_own():
    assert parse(["--max-req-timeout=2h"]).defer_ns_max == 2 * 3600 * 1000 * MS
    assert parse(["--max-req-timeout=2h", "--max-defer=1m"]).defer_ns_max == 60_000 * MS
    validate(parse(["--max-defer=2160h"]))
    with pytest.raises(OptionsError, match="^--max-defer must be at most 2160h0m0s \\(90 days\\)"):
        validate(parse(["--max-defer=2160h0m1s"]))
    with pytest.raises(OptionsError, match="^--max-defer must not be negative: -1s$"):
        validate(parse(["--max-defer=-1s"]))


@pytest.mark.parametrize(
    "flag", ["max-req-timeout", "max-msg-timeout", "max-heartbeat-interval", "sync-timeout"]
)
def test_more_than_a_hundred_years_is_refused(flag):
    validate(parse([f"--{flag}=876600h"]))
    with pytest.raises(
        OptionsError,
        match=f"^--{flag} must be at most 876600h0m0s \\(100 years\\), not 876600h0m1s$",
    ):
        validate(parse([f"--{flag}=876600h0m1s"]))


def test_negative_delays_are_refused():
    with pytest.raises(OptionsError, match="^--max-req-timeout must not be negative: -1s$"):
        validate(parse(["--max-req-timeout=-1s"]))
