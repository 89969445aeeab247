"""Log lines as NSQ writes them, on stderr:

    [nsqd] 2026/11/21 01:18:21.004711 INFO: TCP: listening on 127.0.0.1:4150

or, with --log-format=json, one JSON object per line. The logger has the program's name, and its level can be changed
while the program runs. A record is always one line, whatever a peer put into it, so that nobody can forge a second one.

Modules that several programs share log under their own names (nsqfast.net...), to the same place as the program.
"""

import json
import logging
import os
import re
import select
import sys
import threading
import time
from collections import deque
from typing import Final, TextIO

from nsqfast.program.options import words

# NSQ's numbers, which GET /config/log_level shows.
LEVELS: Final = {"debug": 1, "info": 2, "warn": 3, "error": 4, "fatal": 5}
FORMATS: Final = {"text": 0, "json": 1}

# The kinds of the two flags that every program has.
LEVEL: Final = words(
    LEVELS, lambda text: f"invalid log level: {text} (debug, info, warn, error, fatal)"
)
FORMAT: Final = words(FORMATS, lambda text: f"invalid log format: {text} (text, json)")
LEVEL_HELP: Final = "lowest level to log: debug, info, warn, error or fatal"
LOG_PREFIX_HELP: Final = "what log lines begin with"
FORMAT_HELP: Final = "form of log lines: text, or json for one object per line"

_SHARED: Final = "nsqfast"

_STANDARD: Final = {
    1: logging.DEBUG,
    2: logging.INFO,
    3: logging.WARNING,
    4: logging.ERROR,
    5: logging.CRITICAL,
}
_NAMES: Final = {
    logging.DEBUG: "DEBUG",
    logging.INFO: "INFO",
    logging.WARNING: "WARNING",
    logging.ERROR: "ERROR",
    logging.CRITICAL: "FATAL",
}
# Characters that end a line somewhere, or control a terminal: C0, DEL, C1, and Unicode's line and paragraph separators.
_LINE_ENDS: Final = {code: f"\\u{code:04x}" for code in (0x2028, 0x2029)}
_ESCAPES: Final = (
    {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
    | {ord("\t"): "\t", ord("\n"): "\\n", ord("\r"): "\\r"}
    | _LINE_ENDS
)
_JSON_ESCAPES: Final = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)} | _LINE_ENDS


def escape_controls(text: str) -> str:
    """A text as one line that steers no terminal, for whatever a peer may have written."""
    return text.translate(_ESCAPES)


def escape_json_controls(text: str) -> str:
    """The same for JSON, which stays equal to what it was; its own line ends stay, too."""
    return text.translate(_JSON_ESCAPES)


def _stamp(created_s: float) -> str:
    seconds, micros = divmod(int(created_s * 1_000_000), 1_000_000)
    return f"{time.strftime('%Y/%m/%d %H:%M:%S', time.localtime(seconds))}.{micros:06d}"


class TextFormatter(logging.Formatter):
    """NSQ's line; a traceback follows on lines of its own."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self.prefix = prefix

    def format(self, record: logging.LogRecord) -> str:
        """Format one line, without its newline."""
        level = _NAMES.get(record.levelno, record.levelname)
        line = (
            f"{self.prefix}{_stamp(record.created)} {level}: {escape_controls(record.getMessage())}"
        )
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


# What a line of ours is about. What peers wrote stands in quotes, or behind " - ", where nobody looks for these.
_HEAD: Final = re.compile(r"""(?:(?! - )[^'"])*""")
_NAME: Final = r"([.a-zA-Z0-9_-]{1,64}(?:#ephemeral)?)"
_FIELDS: Final = {
    "topic": re.compile(rf"\btopic[( ]{_NAME}(?=[) ,]|$)", re.IGNORECASE),
    "channel": re.compile(rf"\bchannel[( ]{_NAME}(?=[) ,]|$)"),
    "client": re.compile(r"\bclient\(([^()\s]+)\)|\[([^][\s]+:\d+|\[[0-9a-f:]+\]:\d+)\]"),
}
# A request over HTTP: its path is the peer's, and stands in no quotes.
_REQUEST: Final = re.compile(r"\d{3} [A-Z]+ .* \(([^()\s]+)\) [\d.]+\w*")
_QUEUE: Final = re.compile(rf"DISKQUEUE\({_NAME}(?::{_NAME})?\)")


def fields_of(text: str) -> dict[str, str]:
    """Topic, channel, client and error of a line, as far as it names them."""
    if (asked := _REQUEST.fullmatch(text)) is not None:
        return {"client": asked[1]}
    head = _HEAD.match(text)
    assert head is not None
    said = {name: rule.search(head[0]) for name, rule in _FIELDS.items()}
    found = {name: next(filter(None, one.groups())) for name, one in said.items() if one}
    if (queue := _QUEUE.match(head[0])) is not None:
        found["topic"] = queue[1].partition(".diskqueue.")[0]
        if queue[2]:
            found["channel"] = queue[2]
    if text.startswith(" - ", head.end()):
        found["error"] = text[head.end() + 3 :]
    return found


class JsonFormatter(logging.Formatter):
    """One object per line: time (RFC 3339, UTC), level, program, text, its fields, and a traceback if there is one."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self.program = program

    def format(self, record: logging.LogRecord) -> str:
        """Format one line, without its newline."""
        seconds, micros = divmod(int(record.created * 1_000_000), 1_000_000)
        line = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{micros:06d}Z",
            "level": _NAMES.get(record.levelno, record.levelname),
            "program": self.program,
            "text": (text := record.getMessage()),
            **fields_of(text),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return escape_json_controls(json.dumps(line, ensure_ascii=False))


def set_up(program: str, prefix: str, level: int, log_format: int = 0) -> logging.Logger:
    """Connect the program's logger to stderr; a second call replaces the settings of the first."""
    handler = _handler()
    handler.setFormatter(
        JsonFormatter(program) if log_format == FORMATS["json"] else TextFormatter(prefix)
    )
    for log in (logger(program), logger(_SHARED)):
        log.handlers[:] = [handler]
        log.propagate = False
    set_level(program, level)
    # If a log line cannot be written (stderr closed, disk full), do not print a traceback to stderr.
    logging.raiseExceptions = False
    return logger(program)


def _handler() -> logging.Handler:
    try:
        return StderrHandler(sys.stderr)
    except (OSError, ValueError):
        return logging.StreamHandler(sys.stderr)  # something else replaces it, as in tests


def logger(program: str) -> logging.Logger:
    """The program's logger, whether set up or not."""
    return logging.getLogger(program)


def set_level(program: str, level: int) -> None:
    """Change the level from the next line on; `level` is NSQ's number."""
    for log in (logger(program), logger(_SHARED)):
        log.setLevel(_STANDARD[level])


QUEUE_SIZE_MAX = 1024 * 1024  # bytes of waiting lines
QUEUE_SIZE_AGAIN = (
    QUEUE_SIZE_MAX // 2
)  # this much must be free before lines are accepted again after some were lost
CLOSE_S = 1.0  # for waiting lines at the end of the process


class StderrHandler(logging.Handler):
    """Writes to the descriptor of a stream, without waiting for its reader; OSError if it has none.

    A line is written at once if there is room for it, so that the last one before a crash is there as well. Otherwise
    it waits in a queue, from which a thread writes as long as anything waits. Lines that do not fit into the queue are
    counted, and the count is written after the last line that fitted.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._fd = stream.fileno()
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLOUT)
        self._changed = threading.Condition()
        self._queue: deque[bytes] = deque()
        self._queue_size = 0
        self._lost_count = 0
        self._is_writing = False  # the thread exists

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, or several with a traceback."""
        try:
            data = self._encode(record)
            with self._changed:
                if self._queue:
                    self._put(data)
                elif rest := self._write_at_once(data):
                    self._enqueue(rest)
        except Exception:
            self.handleError(record)

    def _encode(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode("utf-8", "backslashreplace")

    def _write_at_once(self, data: bytes) -> bytes:
        """Write as much as fits; returns the rest. A writable pipe takes PIPE_BUF bytes without blocking."""
        while data and self._poll.poll(0):
            data = data[os.write(self._fd, data[: select.PIPE_BUF]) :]
        return data

    def _put(self, data: bytes) -> None:
        size_max = QUEUE_SIZE_AGAIN if self._lost_count else QUEUE_SIZE_MAX
        if self._queue_size + len(data) > size_max:
            self._lost_count += 1
            return
        self._push_lost_count()
        self._enqueue(data)

    def _push_lost_count(self) -> None:
        if self._lost_count:
            text = "%d lines before this one were lost: nobody read what was written here"
            record = logging.LogRecord("", logging.WARNING, "", 0, text, (self._lost_count,), None)
            self._lost_count = 0
            self._enqueue(self._encode(record))

    def _enqueue(self, data: bytes) -> None:
        self._queue.append(data)
        self._queue_size += len(data)
        if not self._is_writing:
            self._is_writing = True
            threading.Thread(target=self._write_queue, name="stderr", daemon=True).start()

    def _write_queue(self) -> None:
        while data := self._next_waiting():
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError:
                pass  # nobody will read it any more
            with self._changed:
                self._queue_size -= len(self._queue.popleft())

    def _next_waiting(self) -> bytes:
        """The next line; it stays in the queue until it is written, so nothing overtakes it. b"" = none is left."""
        with self._changed:
            if not self._queue:
                self._push_lost_count()
            if self._queue:
                return self._queue[0]
            self._is_writing = False
            self._changed.notify_all()
            return b""

    def flush(self) -> None:
        """Called at the end of the process: waiting lines get a moment to be read."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_writing, CLOSE_S)
