"""The type of a page. The pages themselves are the modules of web.page."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import unquote

from nsqfast.nsqadmin.web.page_request import PageRequest
from nsqfast.nsqadmin.web.view import View


class PageNotFoundError(Exception):
    """No such topic, channel or node; `near` are links to similar names."""

    def __init__(self, kind: str, name: str, near: list[tuple[str, str]]) -> None:
        super().__init__(f"No {kind} {name}")
        self.kind = kind
        self.name = name
        self.near = near


Build = Callable[[PageRequest], Awaitable[View]]


@dataclass(frozen=True, slots=True)
class Page:
    """`route` is below --base-path: `/topics/{topic}`. `section` is its entry in the navigation."""

    name: str
    route: str
    build: Build
    template: str
    section: str = ""
    is_live: bool = True  # `/ui/live` supports it, and its Views are shared
    is_for_admins: bool = False  # others get 403 from the page, its updates and its exports

    def match(self, path: str) -> dict[str, str] | None:
        """The parts of a quoted path without --base-path; None if it is another page's."""
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", self.route)
        found = re.fullmatch(pattern, path)
        return {name: unquote(part) for name, part in found.groupdict().items()} if found else None
