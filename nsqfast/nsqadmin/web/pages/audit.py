"""/audit: the last thousand actions, the newest first; only for admins, because of users' names and addresses."""

from nsqfast.nsqadmin.access.audit import Entry
from nsqfast.nsqadmin.web.request import PageRequest
from nsqfast.nsqadmin.web.tables import Column, TableSpec, chips, make_table
from nsqfast.nsqadmin.web.texts import Kind, State, Timed, count_with_noun
from nsqfast.nsqadmin.web.view import Page, View

KINDS: dict[str, Kind] = {"ok": "ok", "partial": "warn", "failed": "crit", "refused": "crit"}
RESULTS_SHOWN = 3
NO_CHANGE = {"login", "logout", "peek", "export", "test_webhook"}
# What was intended says nothing of what was done; the others stand elsewhere in the row.
INTENDED = {"messages", "memory", "disk", "in_flight", "deferred", "clients", "nodes"}
NOT_LISTED = INTENDED | {"nodes_unknown", "messages_lost", "reason"}
VALUE_SIZE_MAX = 200


def target_text(entry: Entry) -> str:
    """`topic orders, channel billing`"""
    return ", ".join(f"{name} {value}" for name, value in entry.target.items() if value)


def time_text(time: str) -> str:
    """Format 2026-11-22T11:24:03.123Z like times on other pages."""
    shown = f"{time[:10]} {time[11:19]} UTC"
    return Timed((time, shown, shown))


def effect_text(entry: Entry) -> str:
    """`184,201 messages lost, 1 of 2 done, 1 failed`; of other actions what they were asked for."""
    effect, asked = entry.effect, len(entry.results)
    done = sum(result.ok for result in entry.results)
    parts = []
    if isinstance(lost := effect.get("messages_lost"), int):
        # One that did not say how many it has may have lost some, too.
        least = "at least " if effect.get("nodes_unknown") else ""
        parts.append(f"{least}{count_with_noun(lost, 'message')} lost")
    parts += [
        f"{name.replace('_', ' ')} {str(value)[:VALUE_SIZE_MAX]}"
        for name, value in effect.items()
        if name not in NOT_LISTED
    ]
    if asked:
        parts.append(f"{done:,} of {asked:,} done")
    if done < asked:
        parts.append(f"{asked - done:,} failed")
    return ", ".join(parts)


def is_change(entry: Entry) -> bool:
    """Whether it changed something, or tried to and failed."""
    return entry.outcome != "refused" and entry.action not in NO_CHANGE


def result_text(entry: Entry) -> str:
    failed = [
        result.text if result.text.startswith(result.node) else f"{result.node}: {result.text}"
        for result in entry.results
        if not result.ok
    ]
    if failed:
        more = len(failed) - RESULTS_SHOWN
        return "; ".join(failed[:RESULTS_SHOWN]) + (f"; {more:,} more" if more > 0 else "")
    return str(entry.effect.get("reason", ""))


def outcome_states(entry: Entry) -> list[State]:
    return [State(KINDS[entry.outcome], entry.outcome)]


TABLE: TableSpec[Entry] = TableSpec(
    name="audit",
    caption="What was done",
    columns=(
        Column("time", "Time", lambda entry: entry.time, time_text),
        Column("action", "Action", lambda entry: entry.action),
        Column("target", "Target", target_text, priority=2),
        chips("outcome", "Outcome", outcome_states, 2, lambda entry: entry.outcome),
        Column("effect", "Effect", effect_text, priority=2, is_named=False),
        Column("user", "User", lambda entry: entry.user, priority=2),
        Column("role", "Role", lambda entry: entry.role, priority=4),
        Column("ip", "Address", lambda entry: entry.ip, priority=3),
        Column("results", "Results", result_text, priority=3),
        Column("request_id", "Request", lambda entry: entry.request_id, priority=4),
    ),
    key=lambda entry: f"{entry.time} {entry.request_id} {entry.action} {target_text(entry)}",
    searchable=lambda entry: (
        f"{entry.time} {entry.user} {entry.ip} {entry.action} {target_text(entry)} {entry.outcome}"
    ),
    flags={
        "is:change": is_change,
        "is:ok": lambda entry: entry.outcome == "ok",
        "is:failed": lambda entry: entry.outcome in ("failed", "partial"),
        "is:refused": lambda entry: entry.outcome == "refused",
    },
    filters=(("changes only", "is:change"), ("failed", "is:failed"), ("refused", "is:refused")),
    empty="Nothing was done since the start.",
    search_label="Search the audit",
)


async def build_audit(request: PageRequest) -> View:
    return View("Audit", tables={"audit": make_table(request, TABLE, request.context.audit.last())})


AUDIT_PAGE = Page("audit", "/audit", build_audit, "audit.html", "audit", is_for_admins=True)
