"""Rules for nsqd and nsqlookupd."""

from collections.abc import Iterator
from functools import partial

from nsqfast.nsqadmin.cluster.answers import DrainFigures
from nsqfast.nsqadmin.cluster.model import Lookupd, Node, NodeState
from nsqfast.nsqadmin.cluster.probes import Disk, Probes
from nsqfast.nsqadmin.options import Options
from nsqfast.nsqadmin.problems.cases import Cases, Finding, Key, Known, Rule, Severity
from nsqfast.nsqadmin.problems.texts import clock, count, number, percent, size
from nsqfast.nsqadmin.problems.up_node_numbers import UpNodeNumbers

NODE_DOWN = "node_down"
UNHEALTHY = "node_unhealthy"
UNCLEAN_START = "unclean_start"
DRAIN_HELD = "drain_held"
TWICE = "node_twice"
OUT_OF_DATE = "version_behind"
LOOKUPD_DOWN = "lookupd_down"
DISAGREE = "lookupd_disagree"
DISK_LOW = "disk_low"

TEXT_LENGTH_MAX = 400
TWICE_S = 120.0  # the connection of a machine that crashed stands for a minute beside its next one
UNHEALTHY_CLEAR_S = 60.0  # on a full disk a small write may succeed now and then


def node_rules(options: Options) -> list[Rule]:
    return [
        Rule(
            NODE_DOWN,
            "Ask it from this machine (curl http://{node}/ping); if it runs, look at the network, else at the end "
            "of its log. If it is not to come back, forget it on its page.",
        ),
        Rule(
            UNHEALTHY,
            "Its last write to disk failed: look at the free space of its data path, the rights, and its log.",
            clear_s=UNHEALTHY_CLEAR_S,
        ),
        Rule(
            UNCLEAN_START,
            "Find out why it was killed (its log, the machine's journal), and whom the messages were for; then say on "
            "its page that it is known.",
        ),
        Rule(
            DRAIN_HELD,
            "Its log names the queues, and so does curl http://{node}/drain: unpause them, or start consumers. At the "
            "deadline it stops with these messages on its disk.",
            ticks_min=2,
        ),
        Rule(
            TWICE,
            "Only one of them is asked, and the other's messages are on no page: give each a --broadcast-address or a "
            "port of its own.",
            TWICE_S,
            ticks_min=2,
        ),
        Rule(
            OUT_OF_DATE,
            "Upgrade it when it suits; nodes of two versions work together.",
        ),
        Rule(
            LOOKUPD_DOWN,
            "Ask it from this machine (curl {node}/ping); consumers find new nsqd through the others only.",
            ticks_min=2,
        ),
        Rule(
            DISAGREE,
            "Compare --lookupd-tcp-address of this nsqd with that of the others, and look in its log for the "
            "nsqlookupd that does not know it.",
            options.problem_lookupd_disagree_ns / 1e9,
            ticks_min=2,
        ),
        Rule(
            DISK_LOW,
            "Find the channels with the largest backlogs on this node, and whatever else fills the file system of "
            "its data path.",
        ),
    ]


class NodeRules:
    """Judges nodes by one tick alone."""

    def __init__(
        self, options: Options, rules: dict[str, Rule], cases: Cases, probes: Probes
    ) -> None:
        self._options = options
        self._rules = rules
        self._cases = cases
        self._probes = probes

    def judge(self, fresh: UpNodeNumbers) -> Iterator[None]:
        """Judge all nsqd and nsqlookupd, one per step."""
        cluster = fresh.cluster
        for node in cluster.nodes.values():
            self._judge_node(fresh, node)
            yield
        asked = [lookupd for lookupd in cluster.lookupds.values() if lookupd.is_up]
        for lookupd in cluster.lookupds.values():
            if not lookupd.is_up:
                text = partial(_silent, lookupd.error, fresh.at)
                severity = Severity.WARN if asked else Severity.CRIT
                self._add(LOOKUPD_DOWN, lookupd.address, Finding(severity, text, lookupd.since))
        if len(asked) > 1:
            for node in cluster.nodes.values():
                self._judge_agreement(node, asked)
                yield

    def find_known(self, fresh: UpNodeNumbers, key: Key) -> Known:
        """What is known of a node that no longer breaks this rule."""
        cluster = fresh.cluster
        if key.rule == LOOKUPD_DOWN:
            return Known.GOOD if key.node in cluster.lookupds else Known.GONE
        if key.node not in cluster.nodes:
            return Known.GONE
        answering = sum(lookupd.is_up for lookupd in cluster.lookupds.values())
        if key.rule == DISAGREE and answering < 2:
            return Known.UNKNOWN if len(cluster.lookupds) > 1 else Known.GONE
        is_silent = key.rule != NODE_DOWN and key.node in fresh.silent
        is_unasked = key.rule == DISK_LOW and not self._probes.has_asked_vitals(key.node)
        return Known.UNKNOWN if is_silent or is_unasked else Known.GOOD

    def _add(self, rule: str, node: str, finding: Finding) -> None:
        self._cases.add(self._rules[rule], Key(rule, node=node), finding)

    def _judge_node(self, fresh: UpNodeNumbers, node: Node) -> None:
        if node.state is NodeState.DOWN and not node.is_planned(fresh.at):
            is_short = fresh.at - node.since < self._options.problem_node_down_ns / 1e9
            severity = Severity.WARN if is_short else Severity.CRIT
            text = partial(_silent, node.error, fresh.at)
            if node.drain is not None:
                text = partial(_not_back, fresh.at)
            self._add(NODE_DOWN, node.key, Finding(severity, text, node.since))
        if node.state is not NodeState.UP:
            return
        if node.health not in ("OK", ""):
            text = partial(_unhealthy, node.health, fresh.at)
            self._add(UNHEALTHY, node.key, Finding(Severity.CRIT, text))
        if node.unclean_start is not None:
            lost = node.unclean_start.messages
            severity = Severity.WARN if lost == 0 else Severity.CRIT
            text = partial(_unclean_start, lost)
            since = min(node.start_time, fresh.at)
            self._add(UNCLEAN_START, node.key, Finding(severity, text, since))
        if node.drain is not None and node.drain.held > 0:
            text = partial(_held, node.drain, fresh.at)
            self._add(DRAIN_HELD, node.key, Finding(Severity.WARN, text))
        if len(remotes := _remotes(node.remote_addresses)) > 1:
            self._add(TWICE, node.key, Finding(Severity.WARN, partial(_twice, remotes)))
        if node.is_out_of_date:
            self._add(
                OUT_OF_DATE, node.key, Finding(Severity.INFO, partial(_version, node.version))
            )
        vitals = self._probes.vitals(node.key)
        disk = vitals.disk if vitals is not None else None
        if disk is not None and disk.free_bytes < self._options.problem_disk_free * disk.size_bytes:
            self._add(DISK_LOW, node.key, Finding(Severity.CRIT, partial(_disk, disk)))

    def _judge_agreement(self, node: Node, asked: list[Lookupd]) -> None:
        missing = [lookupd.address for lookupd in asked if node.key not in lookupd.nodes]
        if node.state is NodeState.UP and 0 < len(missing) < len(asked):
            text = partial(_disagree, missing, len(asked))
            self._add(DISAGREE, node.key, Finding(Severity.WARN, text))


def _one_line(text: str) -> str:
    """A peer's text in one line. A lone surrogate, from bytes that are not UTF-8, cannot be encoded in JSON."""
    line = " ".join(text.encode("utf-8", "replace").decode().split())
    return line if len(line) <= TEXT_LENGTH_MAX else line[: TEXT_LENGTH_MAX - 1] + "…"


def _silent(error: str, now: float, since: float) -> str:
    cause = f": {_one_line(error)}" if error else ""
    return f"no answer since {clock(since, now)}{cause}"


def _not_back(now: float, since: float) -> str:
    return f"it stopped after a drain at {clock(since, now)} and did not come back"


def _unhealthy(health: str, now: float, since: float) -> str:
    return f"it says since {clock(since, now)}: {_one_line(health)}"


def _unclean_start(lost: int | None, _since: float) -> str:
    if lost is None:
        return "restarted uncleanly: what was only in memory is lost, and nothing is known of it"
    if lost == 0:
        return "restarted uncleanly; nothing was only in memory"
    return f"restarted uncleanly: up to {count(lost, 'message')} in memory are lost"


def _held(drain: DrainFigures, now: float, _since: float) -> str:
    end = "without a deadline" if drain.deadline is None else f"until {clock(drain.deadline, now)}"
    left = f"{number(drain.held)} of {count(drain.messages, 'message')}"
    return f"it drains {end}, and nobody gets {left}: paused, or without consumers"


def _remotes(remote_addresses: tuple[str, ...]) -> list[str]:
    """Where those are that one nsqlookupd knows under this address; given are `nsqlookupd/remote` of all of them."""
    by_lookupd: dict[str, list[str]] = {}
    for text in remote_addresses:
        lookupd, _, remote = text.rpartition("/")
        by_lookupd.setdefault(lookupd, []).append(remote)
    return max(by_lookupd.values(), key=len, default=[])


def _twice(remotes: list[str], _since: float) -> str:
    return f"{len(remotes)} nsqd say that they are here: {_one_line(', '.join(remotes))}"


def _version(version: str, _since: float) -> str:
    return f"it runs {version}, and another nsqd runs a later version"


def _disagree(missing: list[str], total: int, _since: float) -> str:
    return f"{len(missing)} of {total} nsqlookupd do not know it: {', '.join(missing)}"


def _disk(disk: Disk, _since: float) -> str:
    share = percent(disk.free_bytes / disk.size_bytes) if disk.size_bytes else percent(0)
    return f"{size(disk.free_bytes)} of {size(disk.size_bytes)} are free, {share}"
