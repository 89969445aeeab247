"""Delays of weeks to a hundred years: 32 bits of milliseconds are 49.7 days, 64 bits of nanoseconds 292 years."""

import pytest

from nsqfast.errors import OptionsError
from nsqfast.nsqd.options import DURATION_NS_MAX, parse, validate
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
