"""Tests that are a conversation with something that is made for each of them."""

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

Talk = Callable[..., Awaitable[None]]


def beside(serve: Callable[..., None], *limits: Any, **named: Any) -> Callable[[Talk], Any]:
    """Make a test of a `talk` that `serve(talk, ...)` runs; the fixtures that it wants are its keywords."""

    def decorate(talk: Talk) -> Callable[..., None]:
        @functools.wraps(talk)
        def test(**fixtures: Any) -> None:
            serve(functools.partial(talk, **fixtures), *limits, **named)

        parameters = inspect.signature(talk).parameters.values()
        wanted = [one for one in parameters if one.kind is one.KEYWORD_ONLY]
        test.__signature__ = inspect.Signature(wanted)  # type: ignore[attr-defined]
        return test

    return decorate
