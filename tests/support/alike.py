"""Answers of the JSON API made comparable: what may differ between two nsqadmin at the same cluster is taken out.

In lookupd mode Go's nsqadmin takes a node's own address from whichever nsqlookupd answered first, its lists have no
order within one hostname, `connected` is read from a clock, and its percentiles have no exact average.
"""

from __future__ import annotations

from typing import Any

ORDER = {
    "nodes": ("node", "broadcast_address", "tcp_port"),
    "channels": ("channel_name",),
    "clients": ("hostname", "node", "client_id", "remote_address"),
}


def alike(value: Any) -> Any:
    """The same for answers that say the same."""
    if isinstance(value, list):
        return [alike(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {name: _member(name, one) for name, one in value.items()}
    if made.get("remote_addresses"):
        made["remote_addresses"] = sorted(made["remote_addresses"])
        made["remote_address"] = "that of one nsqlookupd"
    return made


def _member(name: str, value: Any) -> Any:
    if name == "connected":
        assert 0 <= value < 3600 * 10**9
        return "a while"
    if name == "average":
        return round(value, 3)
    if name in ORDER and isinstance(value, list):
        return sorted(
            (alike(one) for one in value), key=lambda one: [one.get(key) for key in ORDER[name]]
        )
    return alike(value)


def without(value: Any, *names: str) -> Any:
    """At any depth."""
    if isinstance(value, list):
        return [without(one, *names) for one in value]
    if isinstance(value, dict):
        return {name: without(one, *names) for name, one in value.items() if name not in names}
    return value


def keys_in_order(value: Any) -> Any:
    """Only the names of members, in the order in which they were written."""
    if isinstance(value, list):
        return [keys_in_order(one) for one in value[:1]]
    if isinstance(value, dict):
        return [(name, keys_in_order(one)) for name, one in value.items()]
    return None
