"""The plugin of pytest. Every run that finds nsqfast installed loads it, so its fixtures import what they need."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from nsqfast.testing import NsqCluster, Nsqd

T = TypeVar("T")


@pytest.fixture(scope="session")
def nsqd_flags() -> tuple[str, ...]:
    """Flags of nsqfast-nsqd for all brokers; a fixture of this name in a conftest.py takes its place."""
    return ()


@pytest.fixture(scope="session")
def nsqd(nsqd_flags: tuple[str, ...]) -> "Iterator[Nsqd]":
    """A broker on free ports, one per run: nsqd.address, nsqd.received(topic), nsqd.advance(seconds), ..."""
    from nsqfast.testing.brokers import run_nsqd

    with _entered(run_nsqd(*nsqd_flags)) as broker:
        yield broker


@pytest.fixture
def nsq_topic(request: pytest.FixtureRequest, nsqd: "Nsqd") -> Iterator[str]:
    """A topic name that no other test has; the topic is deleted at the end of the test."""
    from nsqfast.testing.brokers import make_topic_name

    name = make_topic_name(request.node.name)
    yield name
    nsqd.clear(name)


@pytest.fixture
def nsq_cluster(nsqd_flags: tuple[str, ...]) -> "Iterator[NsqCluster]":
    """An nsqlookupd and two nsqd that are registered there, for one test."""
    from nsqfast.testing.brokers import run_cluster

    with _entered(run_cluster(*nsqd_flags)) as cluster:
        yield cluster


@contextmanager
def _entered(context: AbstractContextManager[T]) -> Iterator[T]:
    """What a user has to change is one line, without a traceback."""
    from nsqfast.errors import OptionsError

    fault = ""
    with ExitStack() as stack:
        try:
            value = stack.enter_context(context)
        except OptionsError as error:
            fault = str(error)
        if fault:  # not above, where pytest would show the other error, too
            pytest.fail(fault, pytrace=False)
        yield value
