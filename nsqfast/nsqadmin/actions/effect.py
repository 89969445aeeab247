"""What an action would affect, for the dialog: current numbers, and a description of what happens and what does not."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.actions.order import Action, Item
from nsqfast.nsqadmin.actions.targets import Holding, Target, hash_of
from nsqfast.nsqadmin.results import Result

HAPPENS: Final[dict[tuple[Action, str], tuple[str, ...]]] = {
    (Action.EMPTY, "channel"): (
        "Drops all messages of this channel: those that wait, those that are deferred, and those in flight.",
        "A consumer keeps what it holds, but nsqd answers its FIN with an error.",
        "Not touched: other channels, the topic's own queue, connections. New messages go on arriving.",
    ),
    (Action.EMPTY, "topic"): (
        "Drops the topic's own queue: messages that no channel has got yet.",
        "Not touched: what its channels have, waiting or in flight. New messages go on arriving.",
    ),
    (Action.DELETE, "channel"): (
        "Deletes the channel with all of its messages and disconnects its consumers.",
        "A consumer that connects again makes it again, empty.",
        "Not touched: other channels and the topic.",
    ),
    (Action.DELETE, "topic"): (
        "Deletes the topic with all of its channels and their messages, and disconnects its consumers.",
        "Whoever publishes or subscribes again makes it again, empty.",
        "Not touched: other topics.",
    ),
    (Action.TOMBSTONE, "topic"): (
        "nsqlookupd hides this node from consumers of the topic.",
        "Then the topic is deleted on this node, with its channels and their messages.",
        "If somebody keeps publishing the topic to this node, nsqd makes it again and consumers come back to it.",
        "So stop its producers on this node first.",
        "Not touched: the topic on other nodes, other topics on this node.",
    ),
    (Action.PAUSE, "channel"): (
        "Consumers of this channel get no more messages. What is in flight can still be finished.",
        "Not touched: other channels. Producers go on publishing, so the channel fills.",
    ),
    (Action.PAUSE, "topic"): (
        "New messages stay in the topic's own queue; its channels get no more.",
        "Not touched: what its channels have goes on to consumers. Producers go on publishing.",
    ),
    (Action.UNPAUSE, "channel"): ("Consumers of this channel get messages again.",),
    (Action.UNPAUSE, "topic"): ("What waits in the topic goes to its channels again.",),
    (Action.CREATE, "topic"): (
        "nsqlookupd gets to know the topic, and it is made on the nsqd that you choose.",
        "With no nsqd, as NSQ's own nsqadmin does it, the topic is inactive until somebody publishes to it.",
    ),
    (Action.CREATE, "channel"): (
        "nsqlookupd gets to know the channel, and it is made on the nsqd that you choose.",
        "From then on it gets a copy of each message there.",
        "Another nsqd makes it as soon as it gets the topic.",
    ),
}
REGISTERED_ONLY: Final = (
    "Only nsqlookupd knows it: no nsqd has it, so no message is lost.",
    "nsqlookupd forgets its name.",
)
NUMBERS: Final = ("messages", "memory", "disk", "in_flight", "deferred", "clients")
PARTLY: Final = (
    "If you leave out a node, nsqlookupd is not told, and the {kind} goes on existing there."
)


class NodeEffect(msgspec.Struct):
    """A row of the dialog; the numbers are None if the node did not answer, or if they do not matter."""

    node: str
    hostname: str
    messages: int | None
    memory: int | None
    disk: int | None
    in_flight: int | None
    deferred: int | None
    clients: int | None
    is_chosen: bool
    error: str


class Effect(msgspec.Struct):
    """The whole content of the dialog. The page adds the loss to the button: "Empty billing: lose 12 messages"."""

    id: str
    action: Action
    topic: str
    channel: str
    title: str
    button: str
    lines: Sequence[str]
    confirm: str  # the text to type; '' for none
    loses: bool
    nodes: list[NodeEffect]
    lookupds: list[str]
    warnings: list[str]


def loses(action: Action) -> bool:
    return action in (Action.DELETE, Action.EMPTY, Action.TOMBSTONE)


def object_of(action: Action, item: Item, node: str = "") -> str:
    if item.channel:
        return f"channel {item.channel} of topic {item.topic}"
    where = f" on node {node}" if action is Action.TOMBSTONE else ""
    return f"topic {item.topic}".rstrip() + where


def effect_of(action: Action, target: Target, order_id: str) -> Effect:
    item = target.item
    node = target.nodes[0] if action is Action.TOMBSTONE else ""
    lines = HAPPENS[action, item.kind]
    if action is Action.DELETE:
        if not target.holdings:
            lines = REGISTERED_ONLY
        elif target.lookupds:
            lines = (*lines, PARTLY.format(kind=item.kind))
    return Effect(
        id=order_id,
        action=action,
        topic=item.topic,
        channel=item.channel,
        title=f"{action.capitalize()} {object_of(action, item, node)}",
        button=f"{action.capitalize()} {item.channel or item.topic}"
        + (f" on {node}" if node else ""),
        lines=lines,
        confirm=item.name if action.wants_name else "",
        loses=loses(action),
        nodes=[_node_effect(action, h, is_needed=not target.lookupds) for h in target.holdings],
        lookupds=target.lookupds,
        warnings=target.warnings,
    )


def _node_effect(action: Action, holding: Holding, *, is_needed: bool) -> NodeEffect:
    is_known = not holding.error and action is not Action.CREATE
    # A channel is created where its topic is. A new topic needs no nsqd, if there is an nsqlookupd to register it.
    is_chosen = action is not Action.CREATE or holding.is_there is True or is_needed
    return NodeEffect(
        node=holding.node,
        hostname=holding.hostname,
        is_chosen=is_chosen,
        error=holding.error,
        **{name: getattr(holding, name) if is_known else None for name in NUMBERS},
    )


def audited_effect(action: Action, target: Target, results: Sequence[Result]) -> dict[str, Any]:
    """The intended losses and changes, for the audit, and what was lost where it was done."""
    known = [holding for holding in target.holdings if not holding.error]
    done = {result.node for result in results if result.ok}
    lost = sum(holding.messages for holding in known if holding.node in done)
    return {
        **{name: sum(getattr(holding, name) for holding in known) for name in NUMBERS},
        "nodes": len(target.holdings),
        "nodes_unknown": len(target.holdings) - len(known),
        **({"messages_lost": lost} if loses(action) else {}),
    }


class SetRow(msgspec.Struct):
    topic: str
    channel: str
    messages: int
    clients: int
    nodes: int


class SetEffect(msgspec.Struct):
    """Like Effect, for a set."""

    id: str
    action: Action
    title: str
    button: str
    lines: Sequence[str]
    confirm: str
    loses: bool
    items: list[SetRow]
    nodes_down: list[str]
    lookupds: list[str]
    hash: str


async def effect_of_set(action: Action, targets: Sequence[Target], order_id: str) -> SetEffect:
    kind = targets[-1].item.kind
    what = words_of(targets)
    rows: list[SetRow] = []
    down: set[str] = set()
    slices = Slices()
    for target in targets:
        item, holdings = target.item, target.holdings
        messages = sum(holding.messages for holding in holdings)
        clients = sum(holding.clients for holding in holdings)
        rows.append(SetRow(item.topic, item.channel, messages, clients, len(holdings)))
        down.update(holding.node for holding in holdings if holding.error)
        await slices.pause()
    return SetEffect(
        id=order_id,
        action=action,
        title=f"{action.capitalize()} {what}",
        button=f"{action.capitalize()} {what}",
        lines=HAPPENS[action, kind],
        confirm=str(len(targets)) if action.wants_name else "",
        loses=loses(action),
        items=rows,
        nodes_down=sorted(down),
        lookupds=list(targets[0].lookupds),
        hash=hash_of(action, targets),
    )


def words_of(targets: Sequence[Target]) -> str:
    """For example: 3 topics, 1 channel, 4 topics and channels."""
    kinds = sorted({target.item.kind for target in targets}, reverse=True)
    plural = " and ".join(f"{kind}s" for kind in kinds)
    return f"{len(targets):,} {kinds[0] if len(targets) == 1 else plural}"
