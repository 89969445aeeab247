"""Administer topics and channels from program threads."""

import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

import nsqfast.client.admin as asynchronous
from nsqfast.client.config import Config
from nsqfast.client.lifetime import Logger
from nsqfast.client.sync.loop_thread import LoopThread
from nsqfast.client.sync.owner import Owner

P = ParamSpec("P")
T = TypeVar("T")


def blocking(
    method: Callable[Concatenate[asynchronous.Admin, P], Coroutine[Any, Any, T]],
) -> "Callable[Concatenate[Admin, P], T]":
    """The same method, which returns when it is done."""

    @functools.wraps(method)
    def call(self: "Admin", /, *given: P.args, **named: P.kwargs) -> T:
        return self._ready().call(method(self._admin, *given, **named))

    return call


class Admin(Owner):
    """See nsqfast.client.Admin, whose methods it has."""

    kind: ClassVar[str] = "admin client"

    def __init__(
        self,
        *nsqd: str | Sequence[str],
        nsqlookupd: str | Sequence[str] = (),
        config: Config | None = None,
        timeout_s: float = asynchronous.TIMEOUT_S,
        logger: Logger | None = None,
    ) -> None:
        def build() -> asynchronous.Admin:
            return asynchronous.Admin(
                *nsqd, nsqlookupd=nsqlookupd, config=config, timeout_s=timeout_s, logger=logger
            )

        self._build = build
        self._abandoned: list[object] = []  # a parent process's; leave them alone
        super().__init__(logger)

    @property
    def _name(self) -> str:
        return self._admin.name

    def _make(self) -> None:
        self._admin = self._build()

    def _before_start(self) -> None:
        """Nothing to do: no request can precede the start."""

    def _after_fork(self, loop_thread: LoopThread) -> None:
        self._abandoned += [loop_thread, self._admin]
        self._loop_thread = None
        self._is_connected = False
        self._make()

    def _start(self) -> Coroutine[Any, Any, None]:
        return self._admin.start()

    async def _end(self) -> None:
        await self._admin.close()

    create_topic = blocking(asynchronous.Admin.create_topic)
    create_channel = blocking(asynchronous.Admin.create_channel)
    delete_topic = blocking(asynchronous.Admin.delete_topic)
    delete_channel = blocking(asynchronous.Admin.delete_channel)
    pause_topic = blocking(asynchronous.Admin.pause_topic)
    unpause_topic = blocking(asynchronous.Admin.unpause_topic)
    empty_topic = blocking(asynchronous.Admin.empty_topic)
    pause_channel = blocking(asynchronous.Admin.pause_channel)
    unpause_channel = blocking(asynchronous.Admin.unpause_channel)
    empty_channel = blocking(asynchronous.Admin.empty_channel)
    stats = blocking(asynchronous.Admin.stats)
    peek = blocking(asynchronous.Admin.peek)
    deferred = blocking(asynchronous.Admin.deferred)
    cancel_deferred = blocking(asynchronous.Admin.cancel_deferred)
    run_deferred = blocking(asynchronous.Admin.run_deferred)
