"""Map paths and methods to routes; also make the answers for unknown ones.

A pattern is a path, or a path whose last part is `:name` and matches any one non-empty word. As in NSQ's router, a path
that differs from a route only by case, a trailing or doubled slash, or dots is answered with a redirect to the right
spelling.
"""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class Router(Generic[T]):
    """Routes by path, then by method."""

    exact: dict[str, dict[str, T]] = field(default_factory=dict)
    prefixes: dict[str, dict[str, T]] = field(default_factory=dict)  # "/config/" for "/config/:opt"

    def add(self, method: str, pattern: str, target: T) -> None:
        """Register one method of one path."""
        stem, colon, _ = pattern.partition(":")
        table = self.prefixes if colon else self.exact
        table.setdefault(stem, {})[method] = target

    def find(self, method: str, path: str) -> T | None:
        """The target, or None."""
        return self._methods(path).get(method)

    def _methods(self, path: str) -> dict[str, T]:
        methods = self.exact.get(path)
        if methods is not None:
            return methods
        stem, slash, word = path.rpartition("/")
        return self.prefixes.get(stem + slash, {}) if word else {}

    def allowed(self, path: str) -> str:
        """The value of an Allow header; '' if the path is unknown."""
        methods = self._methods(path)
        return ", ".join(sorted([*methods, "OPTIONS"])) if methods else ""

    def correct(self, method: str, path: str) -> str | None:
        """The spelling under which the method has a route, if this path only contains a slip."""
        clean = clean_path(path)
        for candidate in (clean, clean.rstrip("/"), clean.rstrip("/") + "/"):
            found = self._ignoring_case(method, candidate)
            if found is not None and found != path:
                return found
        return None

    def _ignoring_case(self, method: str, path: str) -> str | None:
        folded = path.lower()
        for known, methods in self.exact.items():
            if known.lower() == folded and method in methods:
                return known
        stem, slash, word = path.rpartition("/")
        for known, methods in self.prefixes.items():
            if word and known.lower() == (stem + slash).lower() and method in methods:
                return known + word
        return None


def clean_path(path: str) -> str:
    """The path without doubled slashes, `.` and `..`; a trailing slash stays."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    trailing = "/" if parts and path.endswith("/") else ""
    return "/" + "/".join(parts) + trailing
