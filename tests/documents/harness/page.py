"""One page from top to bottom."""

from __future__ import annotations

import ast
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

from .blocks import COMPILED, Block, PageError, read_blocks
from .daemons import find_listening, is_port_open, list_started
from .matching import find_difference
from .terminal import POLL_S, Terminal

SECONDS_MAX = 60
FIRST = "1"  # the terminal whose commands are waited for
# In which a terminal that nobody waits for has to show what the page says.
SHOWN_SECONDS_MAX = 20
# What a compiler keeps between runs is found in the user's own folder.
CACHES = {
    "CARGO_HOME": ".cargo",
    "RUSTUP_HOME": ".rustup",
    "GOPATH": "go",
    "npm_config_cache": ".npm",
}


class Page:
    """Runs the blocks of a page in a folder of its own, which is also the home of whoever follows it."""

    def __init__(self, path: Path, *, runs_all: bool = False) -> None:
        self._path = path
        self._runs_all = runs_all
        self._scratch = Path(tempfile.mkdtemp(prefix="page-"))
        self.folder = self._scratch / "home"
        self.folder.mkdir()
        self._terminals: dict[str, Terminal] = {}
        self._last: Block | None = None  # the one whose output may follow
        self._left_out: int | None = None  # the section, since what it needs is missing
        self.done = 0
        self.compared = 0
        self.missing: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for terminal in self._terminals.values():
            terminal.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def run(self) -> None:
        """PageError says at which line the page is wrong."""
        for block in read_blocks(self._path.read_text(encoding="utf-8")):
            try:
                self._do(block)
            except (PageError, SyntaxError, TimeoutError) as error:
                raise PageError(f"{self._path}:{block.line}: {error}\n{self._report()}") from error
        for name, terminal in self._terminals.items():
            if status := terminal.wait(0):
                raise PageError(f"{self._path}: terminal {name}: status {status}\n{self._report()}")

    def _do(self, block: Block) -> None:
        if self._is_left_out(block):
            return
        if block.title:
            path = self.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif "not run" in block.marks and not self._runs_all:
            self._last = None
            if block.kind == "python":
                compile(block.text, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        elif block.is_run:
            self._type(block)
        elif block.is_output:
            self._compare(block)
        elif block.kind in COMPILED:
            raise PageError(f"a block of {block.kind} needs a title, or a mark `not run`")

    def _is_left_out(self, block: Block) -> bool:
        need = block.marks.get("needs")
        if need and shutil.which(need, path=self._environment()["PATH"]) is None:
            self._left_out = block.section
            self.missing.append(need)
        return self._left_out == block.section

    def _type(self, block: Block) -> None:
        terminal = self._terminal(block.terminal)
        commands = block.text
        if block.kind == "python":
            path = self._scratch / f"line-{block.line}.py"
            path.write_text(block.text, encoding="utf-8")
            commands = f"python3 {path}\n"
        if "fails" in block.marks:
            commands = f"set +e; (set -e\n{commands}); [ $? != 0 ]\n"
        before = find_listening(os.getpid())
        terminal.type(commands)
        self._last = block
        self.done += 1
        if block.terminal == FIRST:
            status = terminal.wait(SECONDS_MAX)
            if status is None:
                raise TimeoutError(f"not done after {SECONDS_MAX} s")
            if status:
                raise PageError(f"ended with status {status}")
        self._wait_for_daemons(block, before)

    def _terminal(self, name: str) -> Terminal:
        terminal = self._terminals.get(name)
        if terminal is None:
            terminal = Terminal(
                self._scratch, name, self.folder, self._environment(), is_lasting=name != FIRST
            )
            self._terminals[name] = terminal
        elif (status := terminal.wait(0)) is None:
            terminal.interrupt(SECONDS_MAX)
        elif status:
            raise PageError(f"terminal {name}: what ran there has ended with status {status}")
        return terminal

    def _environment(self) -> dict[str, str]:
        home = Path.home()
        kept = {key: os.environ.get(key, str(home / name)) for key, name in CACHES.items()}
        programs = str(Path(sys.executable).parent)
        return {
            **{key: value for key, value in kept.items() if Path(value).exists()},
            "CHECKOUT": str(Path(__file__).resolve().parents[3]),  # for `run` comments
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",  # a terminal shows each line at once, a file does not
            "TERM": "dumb",
            "USER": os.environ.get("USER", "root"),
        }

    def _wait_for_daemons(self, block: Block, before: set[tuple[str, int]]) -> None:
        started = list_started(block.text) if block.kind == "sh" else []
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            new = [name for name, _ in find_listening(os.getpid()) - before]
            missing = [name for name in set(started) if new.count(name) < started.count(name)]
            port = block.marks.get("port")
            if not missing and (port is None or is_port_open(int(port))):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"not listening: {', '.join([*missing, port or ''])}")
            time.sleep(POLL_S)

    def _compare(self, block: Block) -> None:
        """Expected output follows what was run in the same section, or names its terminal."""
        last = self._last
        name = block.marks.get("terminal")
        if name is None:
            if last is None or last.section != block.section:
                return
            name = last.terminal
        if name not in self._terminals:
            raise PageError(f"nothing was typed into terminal {name}")
        terminal = self._terminals[name]
        deadline = time.monotonic() + SHOWN_SECONDS_MAX
        while True:
            # A program's log is on standard error, so the page shows the one or the other.
            differences = [
                find_difference(
                    block.kind, block.text, text, is_ordered="any order" not in block.marks
                )
                for text in terminal.printed
            ]
            if "" in differences:
                break
            if time.monotonic() > deadline:
                raise PageError("printed something else:\n" + differences[0])
            time.sleep(POLL_S)
        terminal.mark_seen()
        self.compared += 1

    def _report(self) -> str:
        """What each terminal has printed last."""
        parts = []
        for name, terminal in self._terminals.items():
            for stream, text in zip(("output", "errors"), terminal.printed, strict=True):
                parts.append(f"--- terminal {name}, {stream}:\n{text[-3000:]}")
        return "\n".join(parts)
