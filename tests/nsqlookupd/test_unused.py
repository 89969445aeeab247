"""Names without producers go after --inactive-producer-timeout, unless they were created over HTTP."""

from support.lookup import Node, channels, lookup, topics
from support.prometheus import scrape
from support.server import start_nsqlookupd
from support.waiting import wait_until
from support.web import post


def test_names_that_nobody_has():
    with start_nsqlookupd("nsqfast", "--inactive-producer-timeout=500ms") as lookupd:
        with Node(lookupd.tcp) as stays:
            stays.identify()
            stays.register("stays", "c")
            with Node(lookupd.tcp) as leaves:
                leaves.identify(hostname="leaves")
                for topic in ("gone#ephemeral", "gone", "stays", "made", "half"):
                    leaves.register(topic, "d")
                post(lookupd.http, "/channel/create?topic=made&channel=d")
                post(lookupd.http, "/topic/create?topic=half")
                post(lookupd.http, "/channel/create?topic=never&channel=had")
            stays.unregister("stays", "c")
            wait_until(lambda: lookup(lookupd.http, "gone") is None)
            # Those that were last used later go later.
            wait_until(lambda: channels(lookupd.http, "stays") == [])
            assert topics(lookupd.http) == ["half", "made", "never", "stays"]
            assert [channels(lookupd.http, topic) for topic in ("half", "made", "never")] == [
                [],
                ["d"],
                ["had"],
            ]
            stays.register("gone", "d")
            assert channels(lookupd.http, "gone") == ["d"]
        post(lookupd.http, "/topic/delete?topic=never")
        wait_until(lambda: topics(lookupd.http) == ["half", "made"])
        value = scrape(lookupd.http).value
        assert (value("nsqlookupd_topics"), value("nsqlookupd_channels")) == (2, 1)


def test_others_are_served_while_thousands_go():
    count = 3000
    with start_nsqlookupd("nsqfast", "--inactive-producer-timeout=100ms") as lookupd:
        with Node(lookupd.tcp) as leaves:
            leaves.identify()
            leaves.send(b"".join(b"REGISTER t%d c\n" % number for number in range(count)))
            assert all(leaves.read() == b"OK" for _ in range(count))
        with Node(lookupd.tcp) as other:
            while topics(lookupd.http):
                assert other.ask(b"PING") == b"OK"
        assert scrape(lookupd.http).value("nsqlookupd_channels") == 0
