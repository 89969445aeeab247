"""/debug: truthful information about a running Python program under the paths of Go's profiler.

It offers an index, the stacks of all tasks and threads (goroutine), memory figures (heap) and the command line. There
is no sampling profiler, block or thread-creation profile; those paths are not found.
"""

import asyncio
import ctypes
import gc
import io
import re
import sys
import threading
import traceback
import tracemalloc
from pathlib import Path

from nsqfast.net.http_message import Request, Response, parse_query
from nsqfast.net.http_reply import plain_answer
from nsqfast.net.masks import masked_words
from nsqfast.stats.memory import memory_stats, resident_bytes
from nsqfast.wire.gotext import quote

INDEX = """/debug/pprof/

cmdline     the command line, words separated by NUL
goroutine   stacks of all tasks and threads
heap        memory figures, and the largest allocations while tracemalloc is on
"""
_INTEGER = re.compile(r"[+-]?[0-9]+")
_TRACED_LINES_MAX = 50


def index(_request: Request) -> Response:
    """The list of pages."""
    return plain_answer(200, INDEX)


def cmdline(_request: Request) -> Response:
    """The command line as the kernel knows it, without the secrets of addresses."""
    text = Path("/proc/self/cmdline").read_bytes().decode("utf-8", "replace").rstrip("\0")
    return plain_answer(200, "\0".join(masked_words(text.split("\0"))))


def stacks(_request: Request) -> Response:
    """The stacks of all tasks and threads."""
    out = io.StringIO()
    tasks = asyncio.all_tasks()
    out.write(f"tasks: {len(tasks)}\n")
    for task in tasks:
        out.write("\n")
        task.print_stack(file=out)
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()  # noqa: SLF001 - its documented use is this one
    out.write(f"\nthreads: {len(frames)}\n")
    for ident, frame in frames.items():
        out.write(f"\nthread {names.get(ident, ident)}\n")
        out.write("".join(traceback.format_stack(frame)))
    return plain_answer(200, out.getvalue())


def heap(_request: Request) -> Response:
    """The figures of /stats, and those of tracemalloc."""
    lines = [f"resident_bytes {resident_bytes()}"]
    lines += [f"{name} {value}" for name, value in memory_stats().items()]
    lines.append(f"gc_counts {gc.get_count()}")
    if tracemalloc.is_tracing():
        top = tracemalloc.take_snapshot().statistics("lineno")[:_TRACED_LINES_MAX]
        lines += ["", *(str(line) for line in top)]
    else:
        lines.append("tracemalloc off")
    return plain_answer(200, "\n".join(lines) + "\n")


def set_block_rate(request: Request) -> Response:
    """Checks its argument as nsqd does, and has no effect: there is no block profile."""
    rate = ""
    # A form's value takes precedence over the query's.
    for source in (bytes(request.body), request.query):
        try:
            rate = rate or parse_query(source).get("rate", "")
        except ValueError:
            continue
    if _INTEGER.fullmatch(rate):
        return plain_answer(200, "OK")
    return plain_answer(
        400, f"invalid block rate : strconv.Atoi: parsing {quote(rate)}: invalid syntax"
    )


def free_memory(_request: Request) -> Response:
    """Collect garbage and return free pages to the system."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return plain_answer(200, "OK")
