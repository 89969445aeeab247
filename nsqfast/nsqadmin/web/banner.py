"""The banner above every page while a node does not answer: node, cause, since when; updated like the rest of the page.

The View gets the texts `banner.0` to `banner.N` and says which of them are shown; templates/banner.html contains them.
"""

from collections.abc import Iterable

from nsqfast.nsqadmin.cluster.model import Cluster, Lookupd, Node, NodeState
from nsqfast.nsqadmin.problems.cases import Severity
from nsqfast.nsqadmin.problems.node_rules import LOOKUPD_DOWN, NODE_DOWN
from nsqfast.nsqadmin.problems.report import Problem
from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.view import View

LINES_MAX = 5
SILENT = (NODE_DOWN, LOOKUPD_DOWN)
ERROR_SIZE_MAX = 200


def add_banner(view: View, cluster: Cluster, problems: Iterable[Problem]) -> None:
    """At most LINES_MAX lines, the last of which says how many more there are; in the colour of the worst problem."""
    lines = banner_lines(cluster)
    if len(lines) > LINES_MAX:
        rest = len(lines) - LINES_MAX + 1
        lines = [*lines[: LINES_MAX - 1], f"{rest} more do not answer; see Nodes"]
    is_critical = any(
        each.rule in SILENT and each.severity is Severity.CRIT and not each.muted_until
        for each in problems
    )
    view.shown["banner"] = bool(lines)
    view.shown["banner-errors"] = is_critical
    view.shown["banner-warnings"] = not is_critical
    for number in range(LINES_MAX):
        view.texts[f"banner.{number}"] = lines[number] if number < len(lines) else ""
        view.shown[f"banner.{number}"] = number < len(lines)


def banner_lines(cluster: Cluster) -> list[str]:
    """nsqlookupd first: without them the list of nodes may be old."""
    silent = [each for each in cluster.lookupds.values() if not each.is_up]
    lines = [lookupd_line(each) for each in silent]
    if silent and len(silent) == len(cluster.lookupds):
        lines.insert(0, "No nsqlookupd answers: the list of nodes is the last that was known")
    return lines + [
        node_line(node)
        for node in cluster.nodes.values()
        if node.state is NodeState.DOWN and not node.is_planned(cluster.at)
    ]


def lookupd_line(lookupd: Lookupd) -> str:
    """`nsqlookupd 127.0.0.1:4161 has not answered since 11:24:03: Connection refused`"""
    since = lookupd.answered_at or lookupd.since
    silent = f"nsqlookupd {lookupd.address} has not answered since "
    return texts.Timed(silent, texts.clock(since), cause(lookupd.error))


def node_line(node: Node) -> str:
    """The same for an nsqd; its numbers are old."""
    name = f"{node.hostname} ({node.key})" if node.hostname else node.key
    since = texts.clock(node.since)
    return texts.Timed(f"nsqd {name} has been down since ", since, cause(node.error))


def cause(error: str) -> str:
    """The suffix with the cause; nothing if it is unknown."""
    return f": {error[:ERROR_SIZE_MAX]}" if error else ""
