"""/audit: the last thousand actions, the newest first; only for admins, because of users' names and addresses."""

from nsqfast.nsqadmin.access.audit import Entry
from nsqfast.nsqadmin.web.elements import Kind, State
from nsqfast.nsqadmin.web.page_request import PageRequest
from nsqfast.nsqadmin.web.pages import Page
from nsqfast.nsqadmin.web.search import Searchable
from nsqfast.nsqadmin.web.tables import Column, TableSpec, make_table
from nsqfast.nsqadmin.web.texts import Timed
from nsqfast.nsqadmin.web.view import View

KINDS: dict[str, Kind] = {"ok": "ok", "partial": "warn", "failed": "crit", "refused": "crit"}
RESULTS_SHOWN = 3


def target_text(entry: Entry) -> str:
    """topic orders, channel billing"""
    return ", ".join(f"{name} {value}" for name, value in entry.target.items() if value)


def time_text(time: str) -> str:
    """Format 2026-11-22T11:24:03.123Z like times on other pages."""
    shown = f"{time[:10]} {time[11:19]} UTC"
    return Timed((time, shown, shown))


def result_text(entry: Entry) -> str:
    """The failures by node; otherwise the number of nodes."""
    failed = [
        result.text if result.text.startswith(result.node) else f"{result.node}: {result.text}"
        for result in entry.results
        if not result.ok
    ]
    if failed:
        more = len(failed) - RESULTS_SHOWN
        return "; ".join(failed[:RESULTS_SHOWN]) + (f"; {more:,} more" if more > 0 else "")
    if reason := entry.effect.get("reason"):
        return str(reason)
    return f"{len(entry.results):,} of {len(entry.results):,} done" if entry.results else ""


TABLE: TableSpec[Entry] = TableSpec(
    name="audit",
    caption="What was done",
    columns=(
        Column("time", "Time", lambda entry: entry.time, time_text),
        Column("action", "Action", lambda entry: entry.action),
        Column("target", "Target", target_text, priority=2),
        Column(
            "outcome",
            "Outcome",
            lambda entry: entry.outcome,
            chips=lambda entry: (State(KINDS[entry.outcome], entry.outcome),),
            kind="chips",
            priority=2,
        ),
        Column("user", "User", lambda entry: entry.user, priority=2),
        Column("role", "Role", lambda entry: entry.role, priority=4),
        Column("ip", "Address", lambda entry: entry.ip, priority=3),
        Column("results", "Results", result_text, priority=2),
        Column("request_id", "Request", lambda entry: entry.request_id, priority=4),
    ),
    key=lambda entry: f"{entry.time} {entry.request_id} {entry.action} {target_text(entry)}",
    searchable=Searchable(
        text=lambda entry: (
            f"{entry.time} {entry.user} {entry.ip} {entry.action} {target_text(entry)} {entry.outcome}"
        ),
        flags={
            "is:ok": lambda entry: entry.outcome == "ok",
            "is:failed": lambda entry: entry.outcome in ("failed", "partial"),
            "is:refused": lambda entry: entry.outcome == "refused",
        },
    ),
    filters=(("failed", "is:failed"), ("refused", "is:refused")),
    empty="Nothing was done since the start.",
    search_label="Search the audit",
)


async def build(request: PageRequest) -> View:
    """One table."""
    return View("Audit", tables={"audit": make_table(request, TABLE, request.context.audit.last())})


PAGE = Page("audit", "/audit", build, "audit.html", "audit", is_for_admins=True)
