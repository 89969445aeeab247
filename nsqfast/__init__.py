"""NSQ for people who live in Python: wire- and data-directory-compatible with NSQ 1.3.0.

    from nsqfast import Consumer, Producer

App, `embedded` (a broker for tests) and the names of `nsqfast.client` can be imported from here. They are loaded when
the first of them is used: this module is run before any other of the package, and `import nsqfast` should cost nothing.
`python -m nsqfast` says what else there is.

pytest warns of packages with a plugin that were imported before it could rewrite their asserts, except where it reads
PYTEST_DONT_REWRITE.
"""

from typing import TYPE_CHECKING

from nsqfast.version import NSQ_VERSION, __version__

if TYPE_CHECKING:
    from nsqfast.app.application import App
    from nsqfast.client import (
        Admin,
        Batch,
        BufferFullError,
        ChannelStats,
        ClosedError,
        Config,
        ConnectError,
        ConnectionStats,
        Consumer,
        ConsumerStats,
        DelayedMessage,
        InvalidNameError,
        Message,
        Middleware,
        NotConnectedError,
        NsqdStats,
        NsqfastError,
        OptionsError,
        OutcomeUnknownError,
        Peek,
        PeekedMessage,
        Producer,
        ProducerStats,
        PublishError,
        PublishRefusedError,
        RefusedError,
        TopicStats,
        UndeliveredError,
        UnsupportedError,
        WrongPeerError,
    )
    from nsqfast.client import ArrayBatch as ArrayBatch
    from nsqfast.nsqd.embedded import EmbeddedNsqd, embedded

# Without ArrayBatch, so that `import *` needs no numpy.
__all__ = [
    "NSQ_VERSION",
    "Admin",
    "App",
    "Batch",
    "BufferFullError",
    "ChannelStats",
    "ClosedError",
    "Config",
    "ConnectError",
    "ConnectionStats",
    "Consumer",
    "ConsumerStats",
    "DelayedMessage",
    "EmbeddedNsqd",
    "InvalidNameError",
    "Message",
    "Middleware",
    "NotConnectedError",
    "NsqdStats",
    "NsqfastError",
    "OptionsError",
    "OutcomeUnknownError",
    "Peek",
    "PeekedMessage",
    "Producer",
    "ProducerStats",
    "PublishError",
    "PublishRefusedError",
    "RefusedError",
    "TopicStats",
    "UndeliveredError",
    "UnsupportedError",
    "WrongPeerError",
    "__version__",
    "embedded",
]

# Hidden from type checkers, for which it would turn every misspelled name into Any.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load a name when it is used for the first time."""
        if name != "ArrayBatch" and name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "App":
            from nsqfast.app import application as module
        elif name in {"EmbeddedNsqd", "embedded"}:
            from nsqfast.nsqd import embedded as module
        else:
            from nsqfast import client as module
        value = globals()[name] = getattr(module, name)
        return value

    def __dir__() -> list[str]:
        """Name what was not loaded yet, too."""
        return sorted({*globals(), *__all__})
