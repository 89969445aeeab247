"""Addresses of our own pages, below --base-path; every name is quoted, `#` included."""

from urllib.parse import quote, urlencode


class Urls:
    """Built once from --base-path; `base` has no slash at its end."""

    def __init__(self, base_path: str) -> None:
        parts = [part for part in base_path.split("/") if part]
        self.base = "".join("/" + quote(part, safe="") for part in parts)

    def to(self, path: str, **query: str | int) -> str:
        """PATH, which is quoted already, with these parameters; empty ones are left out."""
        given = {name.rstrip("_"): value for name, value in query.items() if value != ""}
        return self.base + path + ("?" + urlencode(given) if given else "")

    def topic(self, topic: str) -> str:
        """The page of a topic."""
        return self.to("/topics/" + quote(topic, safe=""))

    def channel(self, topic: str, channel: str) -> str:
        """The page of a channel."""
        return self.to(f"/topics/{quote(topic, safe='')}/{quote(channel, safe='')}")

    def node(self, key: str) -> str:
        """The page of an nsqd."""
        return self.to("/nodes/" + quote(key, safe=":[]"))
