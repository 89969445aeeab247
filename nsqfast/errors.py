"""Every exception that nsqfast raises on purpose.

NsqfastError
├── OptionsError      the operator's fault: a flag, a config key, a folder; one line that says what to do
├── ProtocolError     the peer's fault: code and detail as NSQ words them
└── PublishError      a message was not taken; the reason is 'exiting' or the operating system's error text
"""


class NsqfastError(Exception):
    """Base of all of them."""


class OptionsError(NsqfastError):
    """A setting that cannot be honoured; the text is meant for the operator."""


class ProtocolError(NsqfastError):
    """What a peer did wrong: `code` is NSQ's word (E_INVALID, BAD_BODY...), `detail` the rest of the error text."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code} {detail}" if detail else code)
        self.code = code
        self.detail = detail


class PublishError(NsqfastError):
    """A publish was refused; nothing of it was kept, unless the text says how much."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
