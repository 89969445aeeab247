"""/problems: current problems; the same table is on other pages with the problems that concern them."""

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from urllib.parse import unquote

from nsqfast.nsqadmin.problems.queue_rules import CONSUMER_STUCK, STUCK
from nsqfast.nsqadmin.problems.report import Problem
from nsqfast.nsqadmin.problems.silences import Scope, Silence
from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.request import PageRequest
from nsqfast.nsqadmin.web.tables import Column, Table, TableSpec, chips, make_table, number
from nsqfast.nsqadmin.web.texts import State
from nsqfast.nsqadmin.web.view import Page, View

WORDS = {"crit": "Critical", "warn": "Warning", "info": "Note"}
CLOCK = re.compile(r"(?:(?P<day>\d{4}-\d\d-\d\d) )?(?P<clock>\d\d:\d\d) UTC")
ORDER = {"crit": 3, "warn": 2, "info": 1}


def rule_text(problem: Problem) -> str:
    """`no_consumers` becomes `No consumers`."""
    words = problem.rule.replace("_", " ")
    return (words[:1].upper() + words[1:]).replace("Lookupd", "nsqlookupd")


def object_text(problem: Problem) -> str:
    name = f"{problem.topic}/{problem.channel}" if problem.channel else problem.topic
    return f"{name} on {problem.node}" if name and problem.node else name or problem.node


def object_address(request: PageRequest, problem: Problem) -> str:
    urls = request.context.urls
    if problem.channel:
        page = urls.channel(problem.topic, problem.channel)
        is_held = problem.rule in (STUCK, CONSUMER_STUCK)
        return f"{page}?tab=clients&sort=-held" if is_held else page
    if problem.topic:
        return urls.topic(problem.topic)
    if problem.node in request.cluster.nodes:
        return urls.node(problem.node)
    return urls.to("/lookup")


def severity_states(problem: Problem) -> list[State]:
    states = [State(problem.severity.value, WORDS[problem.severity.value])]
    if problem.muted_until:
        states.append(State("off", "muted", muted_text(problem)))
    return states


def muted_text(problem: Problem) -> str:
    """Until when, why and by whom."""
    silence = problem.muted_by
    parts = [f"until {texts.stamp(problem.muted_until)}"]
    if silence is not None:
        parts.append("" if silence.scope is Scope.PROBLEM else silenced_text(silence))
        parts += [silence.reason, f"by {silence.user}" if silence.user else ""]
    return ", ".join(part for part in parts if part)


def silenced_text(silence: Silence) -> str:
    """What a silence is for: `node 10.0.0.7:4151`"""
    if silence.scope is Scope.EVERYTHING:
        return "everything"
    if silence.scope is Scope.PROBLEM:
        return f"problem {unquote(silence.target).rstrip('/')}"
    return f"{silence.scope.value} {silence.target}"


def is_muted_itself(problem: Problem) -> bool:
    """Whether it, and not its node or topic, is silenced."""
    silence = problem.muted_by
    return silence is not None and silence.scope is Scope.PROBLEM


def evidence_text(text: str) -> str:
    """With its times, which problems.texts.clock wrote: those of today have no date."""
    pieces: list[texts.Piece] = []
    end = 0
    for found in CLOCK.finditer(text):
        day = found["day"] or time.strftime("%Y-%m-%d", time.gmtime())
        pieces += [text[end : found.start()], (f"{day}T{found['clock']}Z", found[0], found[0])]
        end = found.end()
    return texts.Timed(*pieces, text[end:]) if pieces else text


COLUMNS: tuple[Column[Problem], ...] = (
    Column("where", "Where", object_text, href=object_address),
    chips("severity", "Severity", severity_states, 2, lambda each: ORDER[each.severity.value]),
    Column("rule", "Problem", rule_text, priority=2, is_named=False),
    number("since", "Since", lambda problem: problem.since, 2, texts.clock),
    Column(
        "text", "Evidence", lambda problem: problem.text, evidence_text, priority=2, is_named=False
    ),
    Column("check", "How to check", lambda problem: problem.check, priority=3),
)

TABLE: TableSpec[Problem] = TableSpec(
    name="problems",
    caption="What is wrong now",
    columns=COLUMNS,
    key=lambda problem: problem.id,
    data=lambda problem: {
        "problem": problem.id,
        "muted": "yes" if is_muted_itself(problem) else "",
    },
    kind=lambda problem: problem.severity.value,
    searchable=lambda problem: f"{problem.rule} {object_text(problem)} {problem.text}",
    flags={
        "is:critical": lambda problem: problem.severity.value == "crit",
        "is:warning": lambda problem: problem.severity.value == "warn",
        "is:muted": lambda problem: problem.muted_until > 0,
    },
    filters=(("critical", "is:critical"), ("warning", "is:warning"), ("muted", "is:muted")),
    has_actions=True,
    has_menu=False,
    empty="Nothing is wrong.",
    search_label="Search problems",
)

SILENCES: TableSpec[Silence] = TableSpec(
    name="silences",
    caption="Silences",
    columns=(
        Column("what", "Silenced", silenced_text),
        number("until", "Until", lambda each: each.until, 2, texts.stamp),
        Column("reason", "Reason", lambda each: each.reason, priority=2, is_named=False),
        Column("user", "By", lambda each: each.user, priority=3),
        number("since", "Since", lambda each: each.since or None, 3, texts.stamp),
    ),
    key=lambda each: each.id,
    data=lambda each: {"scope": each.scope.value, "target": each.target},
    has_actions=True,
    has_menu=False,
    is_main=False,
)

OWN = replace(TABLE, searchable=None, filters=(), is_main=False)


def problems_by(
    problems: Iterable[Problem], name: Callable[[Problem], str]
) -> dict[str, list[Problem]]:
    """Those of each object, in their order."""
    found: dict[str, list[Problem]] = {}
    for problem in problems:
        found.setdefault(name(problem), []).append(problem)
    return found


def own_problems(
    request: PageRequest, *, topic: str = "", channel: str = "", node: str = ""
) -> Table[Problem]:
    """Those of a topic with its channels, of one channel, or of a node itself."""
    found = [
        each
        for each in request.context.problems.found
        if (each.topic == topic and channel in ("", each.channel) if topic else each.node == node)
    ]
    return make_table(request, OWN, found)


async def build_problems(request: PageRequest) -> View:
    found = request.context.problems.found
    now = request.cluster.at
    silences = [each for each in request.context.problems.silences if each.until > now]
    return View(
        "Problems",
        shown={"silences-shown": bool(silences)},
        tables={
            "problems": make_table(request, TABLE, found),
            "silences": make_table(request, SILENCES, silences),
        },
        facts={"has_webhook": bool(request.context.webhook)},
    )


PROBLEMS_PAGE = Page("problems", "/problems", build_problems, "problems.html", "problems")
