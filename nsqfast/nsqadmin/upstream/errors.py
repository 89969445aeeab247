"""What goes wrong on the way to nsqd and nsqlookupd."""

from collections.abc import Sequence

from nsqfast.nsqadmin.results import Result


class UpstreamError(Exception):
    """A node did not answer as it should; the text says what was asked and why it failed.

    `status` is 0 where there was no HTTP answer; `message` is the same in nsqadmin's words, for scripts.
    """

    def __init__(self, text: str, status: int = 0, message: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.message = message or text


class NobodyAnsweredError(Exception):
    """Nobody answered a question, so nothing can be shown or done; the text is nsqadmin's.

    `results` are the steps of an action that were taken before.
    """

    def __init__(self, kind: str, failures: Sequence[Result]) -> None:
        super().__init__(f"failed to query any {kind}: " + "\n".join(one.text for one in failures))
        self.failures = list(failures)
        self.results: list[Result] = []
