"""Topology-aware consumption with real clients (spec nsqd-tcp §14). The released nsqd 1.3.0 does not have it."""

import pytest

from support.server import start_nsqd
from support.web import topic_stats
from support.wire import Client

FLAGS = ("--topology-zone=z1", "--topology-region=r1")
EXPERIMENT = "--enable-experiment=topology-aware-consumption"
KEYS = ("zone_local_msg_count", "region_local_msg_count", "global_msg_count")


def subscribed(server, zone, region, rdy):
    client = Client(server.tcp)
    answer = client.identify(feature_negotiation=True, topology_zone=zone, topology_region=region)
    assert (answer["topology_zone"], answer["topology_region"]) == ("z1", "r1")
    client.sub("t", "c", rdy)
    client.barrier()
    return client


def counts(server):
    channel = topic_stats(server.http, "t")["channels"]["c"]
    return {key: channel[key] for key in KEYS if key in channel}


def test_five_for_the_zone_five_for_the_region_and_the_rest_for_others(tmp_path):
    with start_nsqd("nsqfast", tmp_path, *FLAGS, EXPERIMENT, "--enable-experiment=none") as server:
        far = [subscribed(server, "z9", "r9", 5) for _ in range(2)]
        region = subscribed(server, "z2", "r1", 5)
        zone = subscribed(server, "z1", "r9", 5)
        assert counts(server) == {}
        with Client(server.tcp) as publisher:
            for number in range(22):
                publisher.pub("t", b"%d" % number)
        assert [int(m.body) for m in zone.read_messages(5)] == [0, 1, 2, 3, 4]
        assert [int(m.body) for m in region.read_messages(5)] == [5, 6, 7, 8, 9]
        got = [[int(m.body) for m in client.read_messages(5)] for client in far]
        assert got == [[10, 12, 14, 16, 18], [11, 13, 15, 17, 19]]
        assert counts(server) == dict(zip(KEYS, (5, 5, 10), strict=True))
        # Who becomes ready takes what is queued, however far away it is.
        far[0].command("RDY", "6")
        assert int(far[0].read_message().body) == 20
        # What comes back goes to the nearest again.
        zone.command("RDY", "7")
        assert int(zone.read_message().body) == 21
        region.close()
        assert int(zone.read_message().body) in range(5, 10)
        assert counts(server) == dict(zip(KEYS, (7, 5, 11), strict=True))
        for client in (zone, *far):
            client.close()


@pytest.mark.parametrize("flags", [(), ("--enable-experiment=topology",)])
def test_nothing_of_it_shows_without_the_experiment(tmp_path, flags):
    with start_nsqd("nsqfast", tmp_path, *FLAGS, *flags) as server:
        peers = [subscribed(server, *place, 5) for place in (("z9", "r9"), ("z1", "r1"))]
        with Client(server.tcp) as publisher:
            publisher.mpub("t", [b"x"] * 4)
        for peer in peers:
            assert len(peer.read_messages(2)) == 2
        assert counts(server) == {}
        for peer in peers:
            peer.close()


def test_the_config_file_knows_it(tmp_path):
    config = tmp_path / "nsqd.cfg"
    config.write_text('enable_experiment = ["topology-aware-consumption"]\ntopology_zone = "z1"\n')
    with start_nsqd(
        "nsqfast", tmp_path, f"--config={config}", "--mem-queue-size=0", FLAGS[1]
    ) as server:
        zone = subscribed(server, "z1", "r1", 1)
        with Client(server.tcp) as publisher:
            publisher.pub("t", b"by way of the disk")
        zone.read_message()
        assert counts(server) == {}
        zone.close()
