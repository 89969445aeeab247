"""Offsets: for each receiver of a spool, the number of the last segment that a query has taken.

    {"v": 1, "epoch": "…", "subscription": "orders", "channel": "spark", "spools": {"r0": 46, "r1": 15}}

Spark keeps them in its checkpoint. A receiver that is not named begins with its first segment that was not released.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from nsqfast.spark.spool.identity import Identity, SpoolError

VERSION = 1


@dataclass(frozen=True, slots=True)
class Offset:
    """`numbers` by the receiver's name."""

    identity: Identity
    numbers: Mapping[str, int]

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """SpoolError unless it is one of ours."""
        try:
            if fields["v"] != VERSION:
                raise SpoolError(
                    f"the checkpoint is of another version of nsqfast (v {fields['v']!r}); use a new checkpoint"
                )
            identity = Identity(fields["subscription"], fields["channel"], fields["epoch"])
            numbers = {str(name): int(number) for name, number in fields["spools"].items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            raise SpoolError(
                "the checkpoint is not one of the nsq source; use a new checkpoint"
            ) from None
        return cls(identity, numbers)

    def to_json(self) -> dict[str, Any]:
        """Equal offsets must give equal texts: Spark compares them."""
        return {
            "v": VERSION,
            "epoch": self.identity.epoch,
            "subscription": self.identity.subscription,
            "channel": self.identity.channel,
            "spools": dict(sorted(self.numbers.items())),
        }

    def check_subscription(self, subscription: str, channel: str) -> None:
        """SpoolError if it is from another query's checkpoint."""
        own = self.identity
        if (own.subscription, own.channel) != (subscription, channel):
            raise SpoolError(
                f"the checkpoint is of {own.subscription} of channel {own.channel}, not of {subscription} of channel"
                f" {channel}: each subscription has a checkpoint (and a spool) of its own"
            )
