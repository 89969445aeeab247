"""Errors of requests to nsqd and nsqlookupd."""

from collections.abc import Sequence

from nsqfast.nsqadmin.results import Result


class UpstreamError(Exception):
    """A node did not answer properly; the text names the request and the reason.

    `status` is 0 without an HTTP answer; `message` is the same in nsqadmin's words, for scripts.
    """

    def __init__(self, text: str, status: int = 0, message: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.message = message or text


class NobodyAnsweredError(Exception):
    """No node answered, so nothing can be shown or done; the text is nsqadmin's.

    `results` are those of an action's earlier steps.
    """

    def __init__(self, kind: str, failures: Sequence[Result]) -> None:
        super().__init__(f"failed to query any {kind}: " + "\n".join(one.text for one in failures))
        self.failures = list(failures)
        self.results: list[Result] = []
