"""Every exception that nsqfast raises deliberately.

NsqfastError
├── OptionsError      the operator's fault: a flag, a config key, a folder; one line that says what to do
│   ├── InvalidNameError      no name of a topic or channel; a PublishRefusedError, too
│   └── PackageMissingError   a package that only this needs is not installed; an ImportError, too
├── ProtocolError     the peer's fault: code and detail as NSQ words them
├── ConnectError      nsqd cannot be reached, or the connection to it broke; the next attempt may do better
│   ├── RefusedError  nsqd answered with an error: `code` is its error code
│   └── WrongPeerError  another service listens at the address
├── UnsupportedError  the peer cannot do this: NSQ's own nsqd has no such command
├── ClosedError       a Producer or Consumer was used after its end, or not yet started
├── PayloadError      a body that a consumer received is not what its handler takes
└── PublishError      a message was not accepted; the reason is 'exiting' or the operating system's error text
    │                 (in nsqd), or one of these (in the client):
    ├── PublishRefusedError   nsqd refused it: `code` is its error code; the message is not there
    ├── BufferFullError       too many messages wait for an answer; the message was not sent
    ├── NotConnectedError     no nsqd could be reached in time; the message was not sent
    ├── OutcomeUnknownError   it was sent and no answer came; it may be there
    └── UndeliveredError      the end of a producer: `count` messages to `topics` were not delivered, or nobody knows
"""

from collections.abc import Sequence

TOPICS_NAMED_MAX = 10  # in one line of text
# What to write where nsqd's own words do not say it: their beginning and end, as docs/spec/nsqd-tcp.md has them.
_ADVICE = (
    (
        "E_INVALID ",
        "(TLS required)",
        "this nsqd wants TLS: Config(tls_v1=True, tls_root_ca_file=...)",
    ),
    ("E_INVALID DPUB timeout ", "", "nsqd's --max-req-timeout is the longest delay"),
    ("E_BAD_MESSAGE PUB message too big ", "", "nsqd's --max-msg-size is the limit"),
    ("E_BAD_MESSAGE DPUB message too big ", "", "nsqd's --max-msg-size is the limit"),
    ("E_BAD_MESSAGE MPUB message too big ", "", "nsqd's --max-msg-size is the limit"),
    ("E_BAD_BODY MPUB body too big ", "", "nsqd's --max-body-size is the limit of a batch"),
    ("E_BAD_BODY IDENTIFY heartbeat interval ", "", "nsqd's --max-heartbeat-interval is the limit"),
    ("E_BAD_BODY IDENTIFY msg timeout ", "", "it is from 1 s to nsqd's --max-msg-timeout"),
    (
        "E_BAD_BODY IDENTIFY output buffer timeout ",
        "",
        "it is from nsqd's --min-output-buffer-timeout to --max-output-buffer-timeout",
    ),
    ("E_BAD_BODY IDENTIFY output buffer size ", "", "nsqd's --max-output-buffer-size is the limit"),
    ("E_AUTH_FIRST AUTH required ", "", "this nsqd wants a secret: Config(auth_secret=...)"),
)


def with_advice(text: str) -> str:
    """nsqd's words, and behind them what to write instead, where that is known."""
    for begin, end, advice in _ADVICE:
        if text.startswith(begin) and text.endswith(end) and advice not in text:
            return f"{text}; {advice}"
    return text


class NsqfastError(Exception):
    """The base of all of them."""


class OptionsError(NsqfastError):
    """An invalid setting; the text is meant for the operator."""


class OpenLogError(OptionsError):
    """A broker without a commit log was given a folder whose log has what the other files lack."""


class PackageMissingError(OptionsError, ImportError):
    """`part` needs `packages`, which are not installed, and which an extra of nsqfast brings."""

    def __init__(self, part: str, packages: Sequence[str], extra: str) -> None:
        listed = " and ".join(filter(None, [", ".join(packages[:-1]), packages[-1]]))
        verb = "is" if len(packages) == 1 else "are"
        super().__init__(
            f"{part} needs {listed}, which {verb} not installed: pip install 'nsqfast[{extra}]'"
        )


class ProtocolError(NsqfastError):
    """A peer's mistake: `code` is NSQ's error code (E_INVALID, BAD_BODY...), `detail` the rest of the error text."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code} {detail}" if detail else code)
        self.code = code
        self.detail = detail


class PublishError(NsqfastError):
    """A publish was refused; none of it was kept, unless the text says how much."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PublishRefusedError(PublishError):
    """nsqd's answer to a publish was an error."""

    def __init__(self, reason: str) -> None:
        super().__init__(with_advice(reason))
        self.reason = reason
        self.code = reason.partition(" ")[0]

    @property
    def is_passing(self) -> bool:
        """Whether the fault lies with that nsqd, which is about to stop or has a full disk: another one may take it."""
        return self.code in {"E_PUB_FAILED", "E_MPUB_FAILED", "E_DPUB_FAILED"}


class InvalidNameError(OptionsError, PublishRefusedError):
    """No nsqd would take this name of a `kind`, "topic" or "channel"; nothing was sent."""

    def __init__(self, kind: str, reason: str) -> None:
        PublishRefusedError.__init__(self, f"E_BAD_{kind.upper()} {reason}")


class BufferFullError(PublishError):
    """A producer holds as much as it may; wait for answers, with `drain`, and send again."""


class NotConnectedError(PublishError):
    """There was no connection for as long as the publish could wait."""


class OutcomeUnknownError(PublishError):
    """The connection broke, or the time was over, between the publish and its answer."""


class UndeliveredError(PublishError):
    """Messages that a closed producer could not deliver; the first reason is the cause."""

    def __init__(self, topics: dict[str, int], reason: str) -> None:
        self.topics = topics  # how many messages to each
        self.count = sum(topics.values())
        named = ", ".join(sorted(topics)[:TOPICS_NAMED_MAX])
        more = len(topics) - TOPICS_NAMED_MAX
        super().__init__(
            f"not delivered: {self.count} {'message' if self.count == 1 else 'messages'} to {named}"
            f"{f' and {more} other topics' if more > 0 else ''}; {reason}"
        )


class ConnectError(NsqfastError):
    """A connection to nsqd could not be made, or broke."""


class RefusedError(ConnectError):
    """nsqd's answer to IDENTIFY, AUTH or SUB was an error, or granted less than was requested."""

    def __init__(self, text: str) -> None:
        super().__init__(with_advice(text))
        self.code = text.partition(" ")[0]


class WrongPeerError(ConnectError):
    """Another service listens there: HTTP instead of nsqd's TCP port, or an nsqd instead of nsqlookupd."""


class UnsupportedError(NsqfastError):
    """The peer cannot do what was asked for, and was not asked: only nsqfast's daemons can."""


class ClosedError(NsqfastError):
    """It has ended, or has not begun."""


class PayloadError(NsqfastError):
    """A body does not decode; the text says as what, and why not, in one line without the body."""
