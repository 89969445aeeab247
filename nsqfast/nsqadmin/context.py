"""Shared by every part of one nsqadmin: its settings, the addresses of its pages, the cluster, history, audit..."""

from dataclasses import dataclass
from urllib.parse import quote, unquote, urlencode

from aiohttp import web

from nsqfast.nsqadmin.access.audit import Audit
from nsqfast.nsqadmin.cluster.client import Upstream
from nsqfast.nsqadmin.cluster.history import History
from nsqfast.nsqadmin.cluster.poller import Poller
from nsqfast.nsqadmin.cluster.probes import ConsumerWatch
from nsqfast.nsqadmin.options import Options
from nsqfast.nsqadmin.problems.alerts import ProblemWebhook
from nsqfast.nsqadmin.problems.report import Problems

PLAIN = "!$&'()*+,:=@"  # what browsers leave unquoted in a path: cookies compare it byte by byte
LENGTH_MAX = 2048  # of an address to redirect to


class Urls:
    """Addresses of our own pages, below --base-path; every name is quoted, including `#`.

    Built once from --base-path; `base` is quoted and has no slash at its end.
    """

    def __init__(self, base_path: str) -> None:
        parts = [part for part in base_path.split("/") if part]
        self.base = "".join("/" + quote(part, safe=PLAIN) for part in parts)
        # As the router reads a path: decoded, except for `%2F` and `%25`.
        self.decoded_base = "".join("/" + part.replace("%", "%25") for part in parts)

    def below(self, path: str) -> str | None:
        """The rest after `base` in a quoted path, however the base is quoted; None if it is elsewhere."""
        depth = self.base.count("/")
        parts = path.split("/")
        head = "".join("/" + quote(unquote(part), safe=PLAIN) for part in parts[1 : depth + 1])
        if parts[0] or head != self.base:
            return None
        return "".join("/" + part for part in parts[depth + 1 :])

    def own(self, address: str) -> str:
        """ADDRESS if it is one of our paths, with or without a query, else our first page: never another site.

        Browsers read `\\` as `/` and skip tabs and ends of lines (https://url.spec.whatwg.org/): none of ours contains
        any.
        """
        is_plain = address.isascii() and address.isprintable() and not set(address) & set("\\ ")
        is_path = address.startswith("/") and not address.startswith("//")
        path, mark, query = address.partition("?")
        below = self.below(path) if is_plain and is_path and len(address) <= LENGTH_MAX else None
        return f"{self.base}/" if below is None else self.base + below + mark + query

    def to(self, path: str, **query: str | int) -> str:
        """PATH, already quoted, with these parameters; empty ones are left out."""
        given = {name.rstrip("_"): value for name, value in query.items() if value != ""}
        return self.base + path + ("?" + urlencode(given) if given else "")

    def topic(self, topic: str) -> str:
        return self.to("/topics/" + quote(topic, safe=""))

    def channel(self, topic: str, channel: str) -> str:
        return self.to(f"/topics/{quote(topic, safe='')}/{quote(channel, safe='')}")

    def node(self, key: str) -> str:
        return self.to("/nodes/" + quote(key, safe=":[]"))


@dataclass(slots=True)
class Context:
    options: Options
    urls: Urls
    upstream: Upstream
    poller: Poller
    history: History
    problems: Problems
    webhook: ProblemWebhook
    consumers: ConsumerWatch
    audit: Audit
    start_time: float  # Unix time


CONTEXT: web.AppKey[Context] = web.AppKey("nsqadmin.context", Context)


def context_of(request: web.Request) -> Context:
    return request.config_dict[CONTEXT]
