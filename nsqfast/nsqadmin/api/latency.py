"""End-to-end latencies in nsqadmin's form: of one node, and merged over several."""

from typing import Any

from nsqfast.nsqadmin.cluster.answers import Percentiles


def latency_of(one: Percentiles | None) -> dict[str, Any] | None:
    """Of one node: nsqd reports quantile and value, from which the rest of each percentile follows. Nanoseconds."""
    if one is None:
        return None
    percentiles = None
    if one.percentiles is not None:
        percentiles = [_filled(given, one.count) for given in one.percentiles]
    return {"count": one.count, "percentiles": percentiles, "topic": "", "channel": "", "host": ""}


def _filled(given: dict[str, float], count: int) -> dict[str, float]:
    value = _whole(given.get("value", 0))
    filled = {name: _whole(number) for name, number in given.items()}
    filled |= {"min": value, "max": value, "average": value, "count": count}
    return dict(sorted(filled.items()))


def merge_latencies(parts: list[dict[str, Any] | None], topic: str, channel: str) -> dict[str, Any]:
    """Over nodes: counts are summed, the average is weighted by count, min and max are over the nodes' values."""
    merged: dict[float, dict[str, float]] = {}
    for part in parts:
        for one in (part or {}).get("percentiles") or ():
            _merge(merged, one)
    for one in merged.values():
        one["average"] = _whole(one["average"])
    return {
        "count": sum(part["count"] for part in parts if part),
        "percentiles": list(merged.values()) or None,
        "topic": topic,
        "channel": channel,
        "host": "*",
    }


def _merge(merged: dict[float, dict[str, float]], one: dict[str, float]) -> None:
    quantile = one.get("quantile", 0)
    known = merged.get(quantile)
    if known is None:
        known = merged[quantile] = {
            "average": 0,
            "count": 0,
            "max": one["max"],
            "min": one["min"],
            "quantile": quantile,
        }
    known["min"] = min(known["min"], one["min"])
    known["max"] = max(known["max"], one["max"])
    known["count"] += one["count"]
    if known["count"]:
        known["average"] += (one["average"] - known["average"]) * one["count"] / known["count"]


def _whole(number: float) -> float:
    """5 instead of 5.0, as Go writes it."""
    return int(number) if number == int(number) else number
