"""The table of a channel's consumers: one row per connection to one nsqd."""

from collections.abc import Sequence
from dataclasses import dataclass

from nsqfast.nsqadmin.cluster.answers import Client
from nsqfast.nsqadmin.cluster.model import Channel, Cluster, Node
from nsqfast.nsqadmin.cluster.probes import Consumer, Consumers
from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.elements import State
from nsqfast.nsqadmin.web.page_request import PageRequest
from nsqfast.nsqadmin.web.search import Searchable
from nsqfast.nsqadmin.web.tables import Column, TableSpec


@dataclass(frozen=True, slots=True)
class ConsumerRow:
    """`connected_s` is relative to the tick, by the clock of this machine."""

    consumer: Consumer
    node: Node
    connected_s: float
    channel: Channel

    @property
    def client(self) -> Client:
        """nsqd's data about it."""
        return self.consumer.client


def make_rows(cluster: Cluster, channel: Channel, consumers: Consumers) -> list[ConsumerRow]:
    """Those near to their node first, as in nsqadmin: same zone, same region, others."""
    rows = [
        ConsumerRow(
            each,
            cluster.nodes[each.node],
            max(0.0, cluster.at - each.client.connect_ts),
            channel,
        )
        for each in consumers.all()
        if each.node in cluster.nodes
    ]
    return sorted(rows, key=lambda row: (row.node.hostname, row.node.key, -nearness(row)))


def nearness(row: ConsumerRow) -> int:
    """2 in the zone of its node, 1 in its region, 0 elsewhere or unknown."""
    node, client = row.node, row.client
    if not client.topology_region or client.topology_region != node.topology_region:
        return 0
    return 2 if client.topology_zone and client.topology_zone == node.topology_zone else 1


def attribute_states(row: ConsumerRow) -> list[State]:
    """Its negotiated features, identity and location."""
    client = row.client
    states = []
    if client.sample_rate:
        states.append(State("info", f"sampled {client.sample_rate} %"))
    if client.tls:
        parts = [client.tls_version, client.tls_cipher_suite, client.tls_negotiated_protocol]
        states.append(State("info", "TLS", " ".join(part for part in parts if part)))
    if client.deflate:
        states.append(State("info", "Deflate"))
    if client.snappy:
        states.append(State("info", "Snappy"))
    if client.authed:
        parts = [client.auth_identity, client.auth_identity_url]
        states.append(State("info", "authenticated", " ".join(part for part in parts if part)))
    place = "/".join(part for part in (client.topology_region, client.topology_zone) if part)
    if place:
        states.append(State("info", place, "region/zone"))
    near = nearness(row)
    if near:
        states.append(State("ok", "same zone" if near == 2 else "same region", "as its nsqd"))
    return states


def host_text(row: ConsumerRow) -> str:
    """`HOST:PORT (ID)`, with the id only if it adds something."""
    client = row.client
    port = client.remote_address.rpartition(":")[2]
    host = f"{client.hostname}:{port}" if client.hostname else client.remote_address
    return host if client.client_id in ("", client.hostname) else f"{host} ({client.client_id})"


def held_s(row: ConsumerRow) -> float | None:
    """Since its last FIN or REQ, if it has messages; None: below a second, or not reported."""
    return row.client.held_ms / 1e3 or None


def _names(row: ConsumerRow) -> dict[str, str]:
    return {
        "topic": row.channel.topic,
        "channel": row.channel.name,
        "node": row.node.key,
        "client": row.client.remote_address,
    }


def _node_address(request: PageRequest, row: ConsumerRow) -> str:
    return request.context.urls.node(row.node.key)


COLUMNS: Sequence[Column[ConsumerRow]] = (
    Column("host", "Client", host_text, title=lambda row: row.client.remote_address),
    Column("user_agent", "User agent", lambda row: row.client.user_agent, priority=3),
    Column(
        "attributes",
        "Attributes",
        lambda row: ", ".join(state.word for state in attribute_states(row)),
        chips=attribute_states,
        kind="chips",
        priority=3,
        can_sort=False,
    ),
    Column(
        "node",
        "Node",
        lambda row: row.node.key,
        href=_node_address,
        priority=2,
    ),
    Column("rdy", "RDY", lambda row: row.client.ready_count, texts.count, "number"),
    Column("in_flight", "In flight", lambda row: row.client.in_flight_count, texts.count, "number"),
    Column(
        "held",
        "Held for",
        held_s,
        texts.duration,
        "number",
        2,
        help="Since its last FIN or REQ, while it has messages in flight",
    ),
    Column(
        "oldest",
        "Oldest",
        lambda row: row.client.oldest_in_flight_ms / 1e3 or None,
        texts.duration,
        "number",
        3,
        help="Since the oldest message in flight to it was delivered",
    ),
    Column("finish_s", "Finished/s", lambda row: row.consumer.finish_s, texts.rate, "number", 2),
    Column("finished", "Finished", lambda row: row.client.finish_count, texts.count, "number", 4),
    Column("requeued", "Requeued", lambda row: row.client.requeue_count, texts.count, "number", 2),
    Column(
        "timed_out", "Timed out", lambda row: row.client.timeout_count, texts.count, "number", 3
    ),
    Column("messages", "Messages", lambda row: row.client.message_count, texts.count, "number", 4),
    Column("connected", "Connected", lambda row: row.connected_s, texts.duration, "number", 3),
)

SPEC: TableSpec[ConsumerRow] = TableSpec(
    name="clients",
    caption="Clients",
    columns=COLUMNS,
    key=lambda row: row.consumer.key,
    data=_names,
    has_actions=True,
    searchable=Searchable(
        text=lambda row: f"{host_text(row)} {row.client.user_agent} {row.client.remote_address}",
        flags={"no:rdy": lambda row: row.client.ready_count == 0},
        numbers={
            "rdy": lambda row: row.client.ready_count,
            "in_flight": lambda row: row.client.in_flight_count,
            "finished": lambda row: row.client.finish_count,
            "requeued": lambda row: row.client.requeue_count,
            "held": held_s,
            "timed_out": lambda row: row.client.timeout_count,
        },
    ),
    empty="Nobody consumes this channel.",
    search_label="Search clients",
)
