"""The programs that make load: nsqfast-bench, Go's bench_writer and bench_reader, wrk."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from nsqfast.wire.gotext import parse_duration_ns
from server.implementation import ROOT, go_tool

NSQFAST_BENCH, GO_TOOLS, WRK = "nsqfast-bench", "Go's tools", "wrk"
NO_WRK = "wrk is missing, so the rows of HTTP are empty: `apt install wrk`."
WRK_SCRIPT = Path(__file__).with_name("post.lua")
WRK_CONNECTIONS = 32
SECONDS_MAX = 120.0
# Go's tools open one connection per processor that Go sees.
GO_CONNECTIONS = 2

_GO_RESULT = re.compile(r"duration: (\S+) - \S+mb/s - (\S+)ops/s")
_WRK_RESULT = re.compile(r"(\d+) requests in ([\d.]+)(us|ms|s|m),")
_WRK_FAILURE = re.compile(r"^\s*(?:Non-2xx or 3xx responses|Socket errors):.*$", re.MULTILINE)
_WRK_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


class Run(NamedTuple):
    """What a generator did."""

    messages: int
    sample: dict[str, float]


class Ended(NamedTuple):
    """A program that ended well: its output, and the CPU time it took from its start."""

    output: str
    errors: str
    cpu_us: float


def run_program(command: list[str], environment: dict[str, str] | None = None) -> Ended:
    """Run a program and wait for it; if it fails, the error has its text."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        said = done.stdout + done.stderr
        raise RuntimeError(f"{' '.join(command)}\nended with {done.returncode}:\n{said}")
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Ended(done.stdout, done.stderr, spent * 1e6)


# ---- nsqfast-bench


def nsqfast_bench(tcp: str, mode: str, *flags: str) -> dict[str, Any]:
    """Run it; return its report unchanged."""
    command = [sys.executable, "-m", "nsqfast.tools.bench.main", mode, "--json"]
    done = run_program([*command, f"--nsqd-tcp-address={tcp}", *flags])
    report: dict[str, Any] = json.loads(done.output)
    if report["error"]:
        raise RuntimeError(f"nsqfast-bench {mode} {' '.join(flags)}: {report['error']}")
    return report


def read_report(report: dict[str, Any]) -> Run:
    """Return the figures of nsqfast-bench that go into a table."""
    counted = {"pub": "published", "latency": "received"}.get(report["mode"], "finished")
    sample = {
        "rate": report["messages_per_s"],
        "megabytes_per_s": report["megabytes_per_s"],
        "generator_cpu_us": report["cpu_us_per_message"],
    }
    if report["latency_us"]:
        sample |= {f"{name}_us": report["latency_us"][name] for name in ("p50", "p99", "p999")}
    return Run(report[counted], sample)


# ---- Go's


def bench_writer(tcp: str, topic: str, size: int, batch_size: int, seconds: float) -> Run | None:
    """Publish MPUBs over two connections; None if the program is missing."""
    flags = [f"--size={size}", f"--batch-size={batch_size}"]
    return _run_go("bench_writer", tcp, topic, seconds, size, flags)


def bench_reader(tcp: str, topic: str, channel: str, size: int, seconds: float) -> Run | None:
    """Run two consumers that finish what they get; None if the program is missing."""
    flags = [f"--size={size}", f"--channel={channel}"]
    return _run_go("bench_reader", tcp, topic, seconds, size, flags)


def _run_go(
    name: str, tcp: str, topic: str, seconds: float, size: int, flags: list[str]
) -> Run | None:
    program = go_tool(name)
    if program is None:
        return None
    common = [f"--nsqd-tcp-address={tcp}", f"--topic={topic}", f"--runfor={seconds:.3f}s"]
    done = run_program([str(program), *common, *flags], {"GOMAXPROCS": str(GO_CONNECTIONS)})
    return read_go_line(done, size)


def read_go_line(done: Ended, size: int) -> Run:
    """Parse the last line of both tools."""
    found = _GO_RESULT.search(done.errors)
    if not found:
        raise RuntimeError(f"no result in:\n{done.errors}")
    rate = float(found[2])
    messages = round(rate * parse_duration_ns(found[1]) / 1e9)
    sample = {
        "rate": rate,
        "megabytes_per_s": rate * size / 1e6,
        "generator_cpu_us": done.cpu_us / messages,
    }
    return Run(messages, sample)


# ---- wrk


def has_wrk() -> bool:
    """Whether the program is installed."""
    return shutil.which("wrk") is not None


def wrk(url: str, size: int, messages_per_request: int, seconds: float) -> Run:
    """POST over keep-alive connections of one thread, for whole seconds."""
    duration = f"-d{max(1, round(seconds))}s"
    command = ["wrk", "-t1", f"-c{WRK_CONNECTIONS}", duration, "-s", str(WRK_SCRIPT), url]
    done = run_program([*command, "--", str(size), str(messages_per_request)])
    return read_wrk(done, size, messages_per_request)


def read_wrk(done: Ended, size: int, messages_per_request: int) -> Run:
    """Return its requests as messages; an error answer is an error here, too."""
    found, failure = _WRK_RESULT.search(done.output), _WRK_FAILURE.search(done.output)
    if failure or not found:
        raise RuntimeError(f"wrk: {failure[0].strip() if failure else done.output}")
    messages = int(found[1]) * messages_per_request
    rate = messages / (float(found[2]) * _WRK_UNITS[found[3]])
    sample = {
        "rate": rate,
        "megabytes_per_s": rate * size / 1e6,
        "generator_cpu_us": done.cpu_us / messages,
    }
    return Run(messages, sample)
