"""Network namespaces joined by a bridge, made and removed by the test that uses them."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
PREFIX = "10.213.77."
NAMES = Path("/etc/netns")
CLONE_NEWNET = 0x40000000


def why_not() -> str:
    """Why there can be no namespaces here; '' if there can."""
    probe = f"nsqfast-{os.getpid()}-probe"
    try:
        made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False)
    except FileNotFoundError:
        return "ip is missing: apt install iproute2"
    if made.returncode:
        return f"network namespaces are not permitted: {made.stderr.decode().strip()}"
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return ""


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Network:
    """One namespace per host, all on one bridge, which has a namespace of its own."""

    def __init__(self) -> None:
        self._prefix = f"nsqfast-{os.getpid()}-"
        self._hosts: list[str] = []
        self._hub = self._prefix + "hub"
        _ip("netns", "add", self._hub)
        _ip("-n", self._hub, "link", "add", "br0", "type", "bridge")
        _ip("-n", self._hub, "link", "set", "br0", "up")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in [*self._hosts, "hub"]:
            _ip("netns", "del", self._prefix + name)
            shutil.rmtree(NAMES / f"{self._prefix}{name}", ignore_errors=True)

    def add(self, host: str) -> str:
        """The address of a new host."""
        space, port = self._prefix + host, f"p{len(self._hosts)}"
        address = f"{PREFIX}{len(self._hosts) + 1}"
        self._hosts.append(host)
        _ip("netns", "add", space)
        _ip(
            "-n",
            self._hub,
            "link",
            "add",
            port,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            space,
        )
        _ip("-n", self._hub, "link", "set", port, "master", "br0", "up")
        _ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("-n", space, "link", "set", "lo", "up")
        return address

    def name_hosts(self) -> None:
        """Commands that are run on one of these hosts from now on know all of them by name."""
        lines = [f"{PREFIX}{number} {host}" for number, host in enumerate(self._hosts, 1)]
        for host in self._hosts:
            folder = NAMES / f"{self._prefix}{host}"
            folder.mkdir(parents=True)
            # `ip netns exec` has it stand in for /etc/hosts.
            (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))

    def cut(self, host: str) -> None:
        """Nothing gets there, and nothing says so."""
        _ip("-n", self._hub, "link", "set", f"p{self._hosts.index(host)}", "down")

    def restore(self, host: str) -> None:
        _ip("-n", self._hub, "link", "set", f"p{self._hosts.index(host)}", "up")

    def on(self, host: str, *command: str) -> list[str]:
        """The command, run there."""
        return ["ip", "netns", "exec", self._prefix + host, *command]

    def call(self, host: str, work: Callable[[], T]) -> T:
        """What `work` returns when its sockets are made there, and its programs run there."""

        def run() -> T:
            with Path(f"/run/netns/{self._prefix}{host}").open() as space:
                # Of this thread alone.
                if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            return work()

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(run).result()
