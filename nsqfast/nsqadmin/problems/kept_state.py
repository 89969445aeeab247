"""What the previous nsqadmin knew, in HISTORY_FILE.state: a restart, or an upgrade, of nsqadmin resolves no problem.

It is written a few seconds after a change, and believed until this nsqadmin has seen for itself (Cases, Members).
"""

import logging

import msgspec

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.cluster.kept_file import KeptFile, Saver
from nsqfast.nsqadmin.cluster.members import KeptNode
from nsqfast.nsqadmin.cluster.poller import Poller
from nsqfast.nsqadmin.options import Options
from nsqfast.nsqadmin.problems.cases import KeptCase
from nsqfast.nsqadmin.problems.report import Problems

log = logging.getLogger("nsqadmin")

SAVE_INTERVAL_S = 5.0


class _State(msgspec.Struct):
    nsqadmin_state: list[str]  # addresses of the flags
    nodes: list[KeptNode]
    problems: list[KeptCase]


class KeptState:
    """Of one nsqadmin: `start` before the first tick, `stop` after the last one."""

    def __init__(self, options: Options, poller: Poller, problems: Problems) -> None:
        self._options = options
        self._poller = poller
        self._problems = problems
        self._file = KeptFile(options, "state", _State)
        self._written = 0  # hash of what was written
        self._saver = Saver(self._save, SAVE_INTERVAL_S)
        self.stop = self._saver.stop  # after the last tick

    async def start(self) -> None:
        """Believe the file, and begin to write it."""
        if not self._file:
            return
        state = await self._file.read()
        if state is not None:
            if set(state.nsqadmin_state).isdisjoint(self._addresses()):
                log.warning("problems: the state beside --history-file is another cluster's")
            else:
                self._poller.members.restore(state.nodes)
                self._problems.restore(state.problems)
        self._saver.start()

    def _addresses(self) -> list[str]:
        options = self._options
        return options.nsqlookupd_http_addresses or options.nsqd_http_addresses

    async def _save(self) -> None:
        """In slices: there may be thousands of nodes."""
        if not self._poller.cluster.tick:
            return
        slices, seen, parts = Slices(), 0, []
        for kept in (self._poller.members.kept(), self._problems.kept()):
            pieces = []
            for one in kept:
                seen = hash((seen, one.essence))
                pieces.append(msgspec.json.encode(one))
                await slices.pause()
            parts.append(b",".join(pieces))
        if seen == self._written:
            return
        addresses = msgspec.json.encode(self._addresses())
        body = b'{"nsqadmin_state":%b,"nodes":[%b],"problems":[%b]}' % (addresses, *parts)
        await self._file.save(body)
        self._written = seen
