"""What a client that publishes, subscribes and errs is answered, as plainly as spec nsqd-tcp §4-§7 says it."""

import re

from nsqfast.errors import ProtocolError
from nsqfast.wire.identify import identify
from nsqfast.wire.names import is_valid_name, quote

OK = (0, b"OK")
TOLD = (0, b"OK id")  # whichever
LINE_SIZE_MAX = 16384
IDENTITY_SIZE_MAX = 65536
DEATHS_SIZE_MAX = 500 * 16
IDS_LEFT = {"FIN": 1, "REQ": 2, "REJ": 1, "TOUCH": 1}


class More(Exception):  # noqa: N818 - the stream is not at fault
    """What is there is the beginning of a command; `error` is due if nothing follows."""

    def __init__(self, error=None):
        super().__init__()
        self.error = error


class SessionModel:
    """`frames` are the answers without messages; ids that are asked for are in flight to nobody."""

    def __init__(self, options):
        self.options = options
        self.state = "init"
        self.heartbeats = True
        self.frames = []
        self.topics = {}  # name -> bodies published
        self.packs = None
        self.rest = b""
        self.has_magic = self.is_over = self.tells_ids = self.may_reject = False

    def read(self, data, *, at_eof=False):
        """One more read; whatever is whole is run."""
        self.rest += data
        while self.rest and not self.is_over and not self.packs:
            try:
                self.rest = self.rest[self.step(self.rest) :]
            except More as more:
                if at_eof and more.error is not None:
                    self.fail(more.error)
                return
            except ProtocolError as error:
                self.fail(error)

    def fail(self, error):
        text = str(error).encode("utf-8", "surrogateescape")
        self.frames.append((1, text))
        self.is_over = True

    def step(self, data):
        if not self.has_magic:
            if len(data) < 4:
                raise More
            if data[:4] != b"  V2":
                raise ProtocolError("E_BAD_PROTOCOL")
            self.has_magic = True
            return 4
        line, newline, _ = data[:LINE_SIZE_MAX].partition(b"\n")
        if not newline:
            if len(data) >= LINE_SIZE_MAX:
                self.is_over = True
            raise More
        name, *parameters = line.removesuffix(b"\r").split(b" ")
        run = getattr(self, "run_" + name.decode("latin-1").lower(), None)
        if run is None or name != name.upper():
            raise invalid(f"invalid command {plain(name)}")
        size = len(line) + 1
        return size + run(parameters, data[size:])

    def need(self, names, command):
        if self.state not in names:
            raise invalid(f"cannot {command} in current state")

    # commands; each returns how many bytes behind its line it took

    def run_nop(self, parameters, rest):
        return 0

    def run_identify(self, parameters, rest):
        self.need(["init"], "IDENTIFY")
        body = self.sized(rest, "IDENTIFY")
        identity = identify(body, self.options)
        self.heartbeats = identity.heartbeat_ns != 0
        self.tells_ids, self.may_reject = identity.tells_ids, identity.may_reject
        self.frames.append((0, identity.answer(self.options)))
        if identity.deflate or identity.snappy:
            self.packs = "deflate" if identity.deflate else "snappy"
        return 4 + len(body)

    def run_auth(self, parameters, rest):
        self.need(["init"], "AUTH")
        if parameters:
            raise invalid("AUTH invalid number of parameters")
        self.sized(rest, "AUTH")
        raise ProtocolError("E_AUTH_DISABLED", "AUTH disabled")

    def sized(self, rest, command, size_max=IDENTITY_SIZE_MAX):
        size = self.body_size(rest, command, "failed to read body size", size_max)
        if len(rest) < 4 + size:
            raise More(ProtocolError("E_BAD_BODY", f"{command} failed to read body"))
        return rest[4 : 4 + size]

    def body_size(self, rest, command, missing, size_max=1 << 31):
        limit = min(self.options.max_body_size, size_max)
        if len(rest) < 4:
            raise More(ProtocolError("E_BAD_BODY", f"{command} {missing}"))
        size = int32(rest)
        if size <= 0:
            raise ProtocolError("E_BAD_BODY", f"{command} invalid body size {size}")
        if size > limit:
            raise ProtocolError("E_BAD_BODY", f"{command} body too big {size} > {limit}")
        return size

    def run_sub(self, parameters, rest):
        self.need(["init"], "SUB")
        if not self.heartbeats:
            raise invalid("cannot SUB with heartbeats disabled")
        self.count(parameters, 2, "SUB insufficient number of parameters")
        self.check_name(parameters[0], "E_BAD_TOPIC", "SUB topic")
        self.check_name(parameters[1], "E_BAD_CHANNEL", "SUB channel")
        self.topics.setdefault(plain(parameters[0]), [])
        self.state = "subscribed"
        self.frames.append(OK)
        return 0

    def count(self, parameters, least, text):
        if len(parameters) < least:
            raise invalid(text)

    def check_name(self, name, code, what):
        if not is_valid_name(plain(name)):
            raise ProtocolError(code, f"{what} name {quote(name)} is not valid")

    def run_rdy(self, parameters, rest):
        if self.state == "closing":
            return 0
        self.need(["subscribed"], "RDY")
        count = decimal(parameters[0]) if parameters else 1
        if count is None:
            raise invalid(f"RDY could not parse count {plain(parameters[0])}")
        limit = self.options.max_rdy_count
        if count > limit:
            raise invalid(f"RDY count {int64(count)} out of range 0-{limit}")
        return 0

    def run_cls(self, parameters, rest):
        self.need(["subscribed"], "CLS")
        self.state = "closing"
        self.frames.append((0, b"CLOSE_WAIT"))
        return 0

    def run_fin(self, parameters, rest):
        return self.settle(parameters, "FIN")

    def run_req(self, parameters, rest):
        return self.settle(parameters, "REQ")

    def run_touch(self, parameters, rest):
        return self.settle(parameters, "TOUCH")

    def run_rej(self, parameters, rest):
        if not self.may_reject:
            raise invalid("invalid command REJ")
        return self.settle(parameters, "REJ")

    def run_deaths(self, parameters, rest):
        if not self.may_reject:
            raise invalid("invalid command DEATHS")
        self.need(["subscribed", "closing"], "DEATHS")
        ids = self.sized(rest, "DEATHS", DEATHS_SIZE_MAX)
        if re.fullmatch(rb"([0-9a-f]{16})+", ids) is None:
            raise invalid("DEATHS invalid message ID")
        self.frames.append((0, b"{}"))
        return 4 + len(ids)

    def settle(self, parameters, command):
        self.need(["subscribed", "closing"], command)
        self.count(parameters, IDS_LEFT[command], f"{command} insufficient number of params")
        if len(parameters[0]) != 16:
            raise invalid("invalid message ID")
        if command == "REQ" and decimal(parameters[1]) is None:
            raise invalid(f"REQ could not parse timeout {plain(parameters[1])}")
        name = command.encode()
        error = b"E_%b_FAILED %b %b failed ID not in flight" % (name, name, parameters[0])
        self.frames.append((1, error))
        return 0

    def run_pub(self, parameters, rest):
        self.count(parameters, 1, "PUB insufficient number of parameters")
        self.check_name(parameters[0], "E_BAD_TOPIC", "PUB topic")
        return self.publish(parameters, rest, "PUB")

    def run_dpub(self, parameters, rest):
        self.count(parameters, 2, "DPUB insufficient number of parameters")
        self.check_name(parameters[0], "E_BAD_TOPIC", "DPUB topic")
        delay_ms = decimal(parameters[1])
        limit_ms = (self.options.max_defer_ns or self.options.max_req_timeout_ns) // 1_000_000
        if delay_ms is None:
            raise invalid(f"DPUB could not parse timeout {plain(parameters[1])}")
        if delay_ms > limit_ms:
            raise invalid(f"DPUB timeout {int64(delay_ms)} out of range 0-{limit_ms}")
        size = self.publish(parameters, rest, "DPUB")
        if self.tells_ids and len(parameters) == 3 and delay_ms:
            self.frames[-1] = TOLD
        return size

    def run_cancel_deferred(self, parameters, rest):
        return self.end_deferral(parameters, "CANCEL_DEFERRED")

    def run_run_deferred(self, parameters, rest):
        return self.end_deferral(parameters, "RUN_DEFERRED")

    def end_deferral(self, parameters, command):
        if not self.tells_ids:
            raise invalid(f"invalid command {command}")
        self.count(parameters, 2, f"{command} insufficient number of parameters")
        self.check_name(parameters[0], "E_BAD_TOPIC", f"{command} topic")
        if re.fullmatch(rb"[0-9a-f]{16}", parameters[1]) is None:
            raise invalid(f"{command} invalid message ID")
        self.frames.append((0, b"OK 0"))
        return 0

    def publish(self, parameters, rest, command):
        body = self.message(
            rest, command, "message body size", f"{command} failed to read message body"
        )
        self.topics.setdefault(plain(parameters[0]), []).append(body)
        self.frames.append(OK)
        return 4 + len(body)

    def message(self, rest, command, what, missing):
        limit = self.options.max_msg_size
        if len(rest) < 4:
            raise More(ProtocolError("E_BAD_MESSAGE", f"{command} failed to read {what}"))
        size = int32(rest)
        if size <= 0:
            raise ProtocolError("E_BAD_MESSAGE", f"{command} invalid {what} {size}")
        if size > limit:
            raise ProtocolError("E_BAD_MESSAGE", f"{command} message too big {size} > {limit}")
        if len(rest) < 4 + size:
            raise More(ProtocolError("E_BAD_MESSAGE", missing))
        return rest[4 : 4 + size]

    def run_mpub(self, parameters, rest):
        self.count(parameters, 1, "MPUB insufficient number of parameters")
        self.check_name(parameters[0], "E_BAD_TOPIC", "E_BAD_TOPIC MPUB topic")
        published = self.topics.setdefault(plain(parameters[0]), [])
        limit = self.options.max_body_size
        self.body_size(rest, "MPUB", "failed to read body size")
        if len(rest) < 8:
            raise More(ProtocolError("E_BAD_BODY", "MPUB failed to read message count"))
        count = int32(rest[4:])
        if not 0 < count <= (limit - 4) // 5:
            raise ProtocolError("E_BAD_BODY", f"MPUB invalid message count {count}")
        bodies, size = [], 8
        for index in range(count):
            bodies.append(self.mpub_message(rest, size, index))
            size += 4 + len(bodies[-1])
        published += bodies
        self.frames.append(OK)
        return size

    def mpub_message(self, rest, size, index):
        limit = self.options.max_body_size
        announced = int32(rest[size:]) if len(rest) >= size + 4 else 0
        # The size is judged before the bytes are waited for.
        if 0 < announced <= self.options.max_msg_size and size + announced > limit:
            raise ProtocolError("E_BAD_BODY", f"MPUB body too big {size + announced} > {limit}")
        what = f"message({index}) body size"
        return self.message(rest[size:], "MPUB", what, "MPUB failed to read message body")


def invalid(text):
    return ProtocolError("E_INVALID", text)


def plain(text):
    return text.decode("utf-8", "surrogateescape")


def decimal(text):
    return int(text or b"0") % 2**64 if all(48 <= byte < 58 for byte in text) else None


def int32(data):
    return int.from_bytes(data[:4], "big", signed=True)


def int64(number):
    return number - 2**64 if number >= 2**63 else number
