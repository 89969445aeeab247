"""Topics, channels, clients and nodes in the JSON API's form, with nsqadmin's keys in nsqadmin's order."""

import time
from collections.abc import Iterable
from functools import lru_cache
from operator import itemgetter
from typing import Any

import orjson

from nsqfast.nsqadmin.cluster.answers import (
    LISTS_KEPT,
    ChannelStats,
    Client,
    Percentiles,
    TopicStats,
)
from nsqfast.nsqadmin.cluster.discovery import Nsqd

Json = dict[str, Any]
TOPIC_SUMS = ("depth", "memory_depth", "backend_depth", "message_count")
CHANNEL_SUMS = (
    "depth",
    "memory_depth",
    "backend_depth",
    "in_flight_count",
    "deferred_count",
    "requeue_count",
    "timeout_count",
    "message_count",
    "client_count",
)
DELIVERIES = ("zone_local_msg_count", "region_local_msg_count", "global_msg_count")
CLIENT_KEYS = (
    "remote_address",
    "version",
    "client_id",
    "hostname",
    "user_agent",
    "connect_ts",
    "connected",
    "in_flight_count",
    "ready_count",
    "finish_count",
    "requeue_count",
    "message_count",
    "sample_rate",
    "deflate",
    "snappy",
    "authed",
    "auth_identity",
    "auth_identity_url",
)
CLIENT_TLS_KEYS = (
    "tls",
    "tls_cipher_suite",
    "tls_version",
    "tls_negotiated_protocol",
    "tls_negotiated_protocol_is_mutual",
)
TOPOLOGY = ("topology_zone", "topology_region")


def latency_of(one: Percentiles | None) -> dict[str, Any] | None:
    """Of one node: nsqd reports quantile and value, from which the rest of each percentile follows. Nanoseconds."""
    if one is None:
        return None
    percentiles = None
    if one.percentiles is not None:
        percentiles = [_filled(given, one.count) for given in one.percentiles]
    return {"count": one.count, "percentiles": percentiles, "topic": "", "channel": "", "host": ""}


def _filled(given: dict[str, float], count: int) -> dict[str, float]:
    value = _whole(given.get("value", 0))
    filled = {name: _whole(number) for name, number in given.items()}
    filled |= {"min": value, "max": value, "average": value, "count": count}
    return dict(sorted(filled.items()))


def merge_latencies(parts: list[dict[str, Any] | None], topic: str, channel: str) -> dict[str, Any]:
    """Over nodes: counts are summed, the average is weighted by count, min and max are over the nodes' values."""
    merged: dict[float, dict[str, float]] = {}
    for part in parts:
        for one in (part or {}).get("percentiles") or ():
            _merge(merged, one)
    for one in merged.values():
        one["average"] = _whole(one["average"])
    return {
        "count": sum(part["count"] for part in parts if part),
        "percentiles": list(merged.values()) or None,
        "topic": topic,
        "channel": channel,
        "host": "*",
    }


def _merge(merged: dict[float, dict[str, float]], one: dict[str, float]) -> None:
    quantile = one.get("quantile", 0)
    fresh = {"average": 0, "count": 0, "max": one["max"], "min": one["min"], "quantile": quantile}
    known = merged.setdefault(quantile, fresh)
    known["min"] = min(known["min"], one["min"])
    known["max"] = max(known["max"], one["max"])
    known["count"] += one["count"]
    if known["count"]:
        known["average"] += (one["average"] - known["average"]) * one["count"] / known["count"]


def _whole(number: float) -> float:
    """5 instead of 5.0, as Go writes it."""
    return int(number) if number == int(number) else number


def node_object(node: Nsqd) -> Json:
    return {
        "remote_addresses": node.remote_addresses,
        "remote_address": node.remote_address,
        "hostname": node.hostname,
        "broadcast_address": node.broadcast_address,
        "tcp_port": node.tcp_port,
        "http_port": node.http_port,
        "version": node.version,
        **_known_topology(node),
        "topics": _topic_list(node.topics, node.tombstones) if node.topics else None,
        "out_of_date": node.is_out_of_date,
    }


@lru_cache(maxsize=LISTS_KEPT)
def _topic_list(names: tuple[str, ...], tombstones: tuple[bool, ...]) -> orjson.Fragment:
    """Most nodes of a cluster have the same topics, and this list is nearly all of a NODE."""
    pairs = zip(names, tombstones, strict=True)
    return orjson.Fragment(
        orjson.dumps([{"topic": name, "tombstoned": hidden} for name, hidden in pairs])
    )


def topic_object(node: Nsqd, topic: TopicStats) -> Json:
    name, channels = topic.topic_name, topic.channels
    return {
        "node": node.key,
        "hostname": node.hostname,
        "topic_name": name,
        "depth": topic.depth,
        "memory_depth": topic.depth - topic.backend_depth,
        "backend_depth": topic.backend_depth,
        "message_count": topic.message_count,
        "nodes": None,
        "channels": channels and [channel_object(node, name, one) for one in channels],
        "paused": topic.paused,
        "e2e_processing_latency": latency_of(topic.e2e_processing_latency),
    }


def channel_object(node: Nsqd, topic: str, channel: ChannelStats) -> Json:
    clients = channel.clients
    return {
        "node": node.key,
        "hostname": node.hostname,
        "topic_name": topic,
        "channel_name": channel.channel_name,
        "depth": channel.depth,
        "memory_depth": channel.depth - channel.backend_depth,
        **{name: getattr(channel, name) for name in CHANNEL_SUMS[2:-1]},
        **_deliveries({name: getattr(channel, name) for name in DELIVERIES}),
        "client_count": channel.client_count,
        "nodes": None,
        "clients": None if clients is None else [client_object(node, one) for one in clients],
        "paused": channel.paused,
        "e2e_processing_latency": latency_of(channel.e2e_processing_latency),
    }


def client_object(node: Nsqd, client: Client) -> Json:
    """A consumer's connection; `connected`, which it does not have itself, is in nanoseconds, by our clock."""
    connected_ns = (int(time.time()) - client.connect_ts) * 1_000_000_000
    return {
        "node": node.key,
        **{name: getattr(client, name, connected_ns) for name in CLIENT_KEYS},
        **{f"node_{name}": text for name, text in _known_topology(node).items()},
        **_known_topology(client),
        **{name: getattr(client, name) for name in CLIENT_TLS_KEYS},
    }


def merge_topics(name: str, parts: list[Json]) -> Json:
    """A topic over all nodes; one that no node has is empty."""
    channels: dict[str, list[Json]] = {}
    for part in parts:
        for one in part["channels"] or ():
            channels.setdefault(one["channel_name"], []).append(one)
    merged = [merge_channels(name, one, channels[one]) for one in sorted(channels)]
    return {
        "node": "*" if parts else "",
        "hostname": "",
        "topic_name": name,
        **_sums(parts, TOPIC_SUMS),
        "nodes": parts or None,
        "channels": merged or None,
        "paused": any(part["paused"] for part in parts),
        "e2e_processing_latency": _merged_latency(parts, name, "") if parts else None,
    }


def merge_channels(topic: str, name: str, parts: list[Json]) -> Json:
    clients = [client for part in parts for client in part["clients"] or ()]
    clients.sort(key=itemgetter("hostname", "node", "remote_address"))
    return {
        "node": "*" if parts else "",
        "hostname": "",
        "topic_name": topic,
        "channel_name": name,
        **_sums(parts, CHANNEL_SUMS[:-1]),
        **_deliveries({kind: sum(part.get(kind, 0) for part in parts) for kind in DELIVERIES}),
        **_sums(parts, CHANNEL_SUMS[-1:]),
        "nodes": parts or None,
        "clients": clients or None,
        "paused": any(part["paused"] for part in parts),
        "e2e_processing_latency": _merged_latency(parts, topic, name) if parts else None,
    }


def _merged_latency(parts: list[Json], topic: str, channel: str) -> Json:
    return merge_latencies([part["e2e_processing_latency"] for part in parts], topic, channel)


def _sums(parts: Iterable[Json], names: Iterable[str]) -> dict[str, int]:
    return {name: sum(part[name] for part in parts) for name in names}


def _deliveries(counts: dict[str, int]) -> dict[str, int]:
    """Shown if nsqd counts them, which it does only with its topology experiment."""
    given = {name: count for name, count in counts.items() if count}
    return {"delivery_msg_count": sum(given.values()), **given} if given else {}


def _known_topology(one: Nsqd | Client) -> dict[str, str]:
    return {name: text for name in TOPOLOGY if (text := getattr(one, name))}
