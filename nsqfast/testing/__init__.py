"""A broker for tests of one's own code: fixtures of pytest and a base class for unittest; see docs/TESTING.md.

    def test_an_order_is_announced(nsqd, nsq_topic):
        announce(nsqd.address, nsq_topic)
        assert nsqd.wait_received(nsq_topic) == [b"order 7"]

Every run of pytest loads this package, so what it names is loaded when it is used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nsqfast.testing.brokers import NsqCluster as NsqCluster
    from nsqfast.testing.brokers import Nsqd as Nsqd
    from nsqfast.testing.cases import NsqTestCase as NsqTestCase

__all__ = ["NsqCluster", "NsqTestCase", "Nsqd"]

# Hidden from type checkers, for which it would turn every misspelled name into Any.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load a name when it is used for the first time."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "NsqTestCase":
            from nsqfast.testing import cases as module
        else:
            from nsqfast.testing import brokers as module
        value = globals()[name] = getattr(module, name)
        return value
