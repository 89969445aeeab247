"""An HTTP server whose handlers may assert: what fails there fails the test."""

from __future__ import annotations

import sys
from http.server import ThreadingHTTPServer


class StrictHTTPServer(ThreadingHTTPServer):
    """`server_close` raises the first error of a handler; clients that hang up make none."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, *arguments: object) -> None:
        self.errors: list[BaseException] = []
        super().__init__(*arguments)

    def handle_error(self, *_: object) -> None:
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, OSError):
            self.errors.append(error)

    def server_close(self) -> None:
        super().server_close()
        if self.errors:
            raise self.errors[0]
