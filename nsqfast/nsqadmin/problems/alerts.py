"""--problem-webhook: a POST for problems that are raised, become better or worse, or are over; docs/ADMIN.md has the
forms, which receivers know already.

A problem that is muted is not raised; one that was raised, and is muted since, is still told to be over.
"""

import hashlib
import logging
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from nsqfast.nsqadmin.access.origin import readable
from nsqfast.nsqadmin.options import FORMS, Options
from nsqfast.nsqadmin.outbox import Outbox
from nsqfast.nsqadmin.problems.cases import Severity
from nsqfast.nsqadmin.problems.report import Problem, Problems

log = logging.getLogger("nsqadmin")

FLAG: Final = "--problem-webhook"
RETRY_S: Final = 3600.0
CLOSE_S: Final = 2.0
LINES_MAX: Final = 20
WORDS: Final = {Severity.CRIT: "critical", Severity.WARN: "warning", Severity.INFO: "info"}
NEVER: Final = "0001-01-01T00:00:00Z"  # as Alertmanager says that an alert has not ended


class Event(NamedTuple):
    """`status` is raised, changed or resolved."""

    status: str
    problem: Problem


def make_event(status: str, problem: Problem) -> Event:
    """Bytes that are not UTF-8, in what peers name, are no JSON."""
    plain: dict[str, Any] = {
        kind: readable(getattr(problem, kind)) for kind in ("topic", "channel", "node", "text")
    }
    return Event(status, replace(problem, **plain))


class ProblemWebhook:
    """Call `begin` once the problems of the previous nsqadmin are believed; without the flag nothing is sent."""

    def __init__(self, options: Options, problems: Problems) -> None:
        endpoint = options.problem_webhook
        self._outbox = Outbox(FLAG, endpoint, RETRY_S) if endpoint else None
        self._make = FORM_OF[options.problem_webhook_form]
        self._problems = problems
        self._told: dict[str, Problem] = {}

    def __bool__(self) -> bool:
        return self._outbox is not None

    def begin(self) -> None:
        """What the previous nsqadmin raised is not raised again."""
        if self._outbox is not None:
            self._told = {one.id: one for one in self._problems.found if not one.muted_until}
            self._problems.listen(self._tell)

    async def test(self, user: str) -> str:
        """Send one that is no problem; why that failed, or ''."""
        if self._outbox is None:
            return f"{FLAG} is not given"
        text = f"a test from nsqadmin{f' by {user}' if user else ''}: nothing is wrong"
        problem = Problem("test", "test", Severity.INFO, "", "", "", time.time(), text, "")
        return await self._outbox.send_now(self._make([Event("raised", problem)]))

    async def close(self) -> None:
        """Send what waits, for CLOSE_S at most."""
        if self._outbox is not None:
            await self._outbox.close(CLOSE_S)

    def _tell(self) -> None:
        events = list(self._changes())
        if events and self._outbox is not None:
            self._outbox.add(self._make(events), f"{len(events)} changes of problems")

    def _changes(self) -> Iterable[Event]:
        found = {problem.id: problem for problem in self._problems.found}
        for problem in found.values():
            told = self._told.get(problem.id)
            if told is None and not problem.muted_until:
                self._told[problem.id] = problem
                yield make_event("raised", problem)
            elif told and told.severity is not problem.severity and not problem.muted_until:
                self._told[problem.id] = problem
                yield make_event("changed", problem)
        for problem in [one for name, one in self._told.items() if name not in found]:
            # One that is behind the worst thousand is not over.
            if not self._problems.is_reported(problem):
                del self._told[problem.id]
                yield make_event("resolved", problem)


def own_form(events: list[Event]) -> bytes:
    told = [{"status": event.status, "problem": event.problem} for event in events]
    return msgspec.json.encode({"via": socket.gethostname(), "events": told})


def alertmanager_form(events: list[Event]) -> bytes:
    """See https://prometheus.io/docs/alerting/latest/configuration/#webhook_config"""
    is_firing = any(event.status != "resolved" for event in events)
    alerts = [_alert(event) for event in events]
    return msgspec.json.encode(
        {
            "version": "4",
            "groupKey": "nsqadmin",
            "truncatedAlerts": 0,
            "status": "firing" if is_firing else "resolved",
            "receiver": "nsqadmin",
            "groupLabels": {},
            "commonLabels": {"alertname": "NsqProblem"},
            "commonAnnotations": {},
            "externalURL": "",
            "alerts": alerts,
        }
    )


def _alert(event: Event) -> dict[str, Any]:
    problem, is_over = event.problem, event.status == "resolved"
    names = {"topic": problem.topic, "channel": problem.channel, "node": problem.node}
    labels = {"alertname": "NsqProblem", "rule": problem.rule, "severity": WORDS[problem.severity]}
    return {
        "status": "resolved" if is_over else "firing",
        "labels": labels | {kind: name for kind, name in names.items() if name},
        "annotations": {"summary": problem.text, "description": problem.check},
        "startsAt": _stamp(problem.since),
        "endsAt": _stamp(time.time()) if is_over else NEVER,
        "generatorURL": "",
        "fingerprint": hashlib.blake2b(problem.id.encode(), digest_size=8).hexdigest(),
    }


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def slack_form(events: list[Event]) -> bytes:
    lines = [_line(event) for event in events[:LINES_MAX]]
    if len(events) > LINES_MAX:
        lines.append(f"and {len(events) - LINES_MAX} more")
    return msgspec.json.encode({"text": "\n".join(lines)})


def _line(event: Event) -> str:
    problem = event.problem
    names = "/".join([name for name in (problem.topic, problem.channel) if name])
    where = " on ".join([name for name in (names, problem.node) if name])
    word = "Over" if event.status == "resolved" else WORDS[problem.severity].capitalize()
    text = f"{word}: {problem.rule} {where}: {problem.text}" if where else f"{word}: {problem.text}"
    # https://docs.slack.dev/messaging/formatting-message-text/#escaping
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


FORM_OF: Final[dict[str, Callable[[list[Event]], bytes]]] = dict(
    zip(FORMS, (own_form, alertmanager_form, slack_form), strict=True)
)
