"""IDENTIFY: check a client's requests and build the answer (spec nsqd-tcp §7). Runs once per connection."""

from dataclasses import dataclass
from typing import Any, Protocol

from nsqfast.errors import ProtocolError
from nsqfast.version import NSQ_VERSION
from nsqfast.wire.gojson import INT32_MAX, INT64_MAX, decode_record, encode
from nsqfast.wire.protocol import MAY_REJECT, TELLS_IDS

MS = 1_000_000

HEARTBEAT_NS = 30_000 * MS  # half of NSQ's fixed client timeout of 60 s
OUTPUT_BUFFER_SIZE = 16384
OUTPUT_BUFFER_SIZE_MIN = 64
DEFLATE_LEVEL = 6
HEARTBEAT_MS_MIN = 1000
MSG_TIMEOUT_MS_MIN = 1000
SAMPLE_RATE_MAX = 99
STRING_SIZE_MAX = 256  # kept for as long as the client is there, and shown in /stats

_STRINGS = ("client_id", "hostname", "user_agent", "topology_region", "topology_zone")
_BOOLEANS = ("feature_negotiation", "tls_v1", "snappy", "deflate", TELLS_IDS, MAY_REJECT)
_INTEGERS = {
    "heartbeat_interval": INT64_MAX,
    "output_buffer_timeout": INT64_MAX,
    "output_buffer_size": INT64_MAX,
    "sample_rate": INT32_MAX,
    "msg_timeout": INT64_MAX,
    "deflate_level": INT64_MAX,
}


class Limits(Protocol):
    """The options that negotiation uses; all `_ns` are nanoseconds."""

    max_heartbeat_interval_ns: int
    max_output_buffer_size: int
    max_output_buffer_timeout_ns: int
    min_output_buffer_timeout_ns: int
    output_buffer_timeout_ns: int
    max_msg_timeout_ns: int
    msg_timeout_ns: int
    max_rdy_count: int
    max_deflate_level: int
    deflate: bool
    snappy: bool
    topology_region: str
    topology_zone: str
    auth_http_addresses: list[str]

    @property
    def has_tls(self) -> bool:
        """Whether the broker has a certificate."""


@dataclass(slots=True)
class Identity:
    """A client's settings after IDENTIFY; `heartbeat_ns` = 0 means that heartbeats are off."""

    client_id: str
    hostname: str
    user_agent: str
    topology_region: str
    topology_zone: str
    feature_negotiation: bool
    heartbeat_ns: int
    output_buffer_timeout_ns: int
    output_buffer_size: int
    sample_rate: int
    msg_timeout_ns: int
    deflate: bool
    deflate_level: int
    snappy: bool
    tls: bool
    tells_ids: bool
    may_reject: bool

    def answer(self, limits: Limits) -> bytes:
        """The data of the response frame: OK, or the JSON of a client that negotiates."""
        if not self.feature_negotiation:
            return b"OK"
        return encode(
            {
                "max_rdy_count": limits.max_rdy_count,
                "version": NSQ_VERSION,
                "max_msg_timeout": limits.max_msg_timeout_ns // MS,
                "msg_timeout": self.msg_timeout_ns // MS,
                "tls_v1": self.tls,
                "deflate": self.deflate,
                "deflate_level": self.deflate_level,
                "max_deflate_level": limits.max_deflate_level,
                "snappy": self.snappy,
                "sample_rate": self.sample_rate,
                "auth_required": bool(limits.auth_http_addresses),
                "output_buffer_size": self.output_buffer_size,
                "output_buffer_timeout": self.output_buffer_timeout_ns // MS,
                "topology_region": limits.topology_region,
                "topology_zone": limits.topology_zone,
            }
            | ({TELLS_IDS: True} if self.tells_ids else {})
            | ({MAY_REJECT: True} if self.may_reject else {})
        )


def identify(body: bytes, limits: Limits) -> Identity:
    """Parse the JSON; ProtocolError E_BAD_BODY with NSQ's text for the first fault, in NSQ's order."""
    asked = _decode(body)
    heartbeat_ns = _heartbeat(asked["heartbeat_interval"], limits)
    timeout_ns = _output_timeout(asked["output_buffer_timeout"], limits)
    size = _output_size(asked["output_buffer_size"], limits)
    if size == 1:
        timeout_ns = 0
    if not 0 <= asked["sample_rate"] <= SAMPLE_RATE_MAX:
        raise _bad(f"sample rate ({asked['sample_rate']}) is invalid")
    negotiates = asked["feature_negotiation"]
    deflate = negotiates and asked["deflate"] and limits.deflate
    snappy = negotiates and asked["snappy"] and limits.snappy
    if deflate and snappy:
        raise ProtocolError(
            "E_IDENTIFY_FAILED", "cannot enable both deflate and snappy compression"
        )
    return Identity(
        **{name: asked[name] for name in _STRINGS},
        feature_negotiation=asked["feature_negotiation"],
        heartbeat_ns=heartbeat_ns,
        output_buffer_timeout_ns=timeout_ns,
        output_buffer_size=size,
        sample_rate=asked["sample_rate"],
        msg_timeout_ns=_msg_timeout(asked["msg_timeout"], limits),
        deflate=deflate,
        deflate_level=_deflate_level(asked["deflate_level"] if deflate else 0, limits),
        snappy=snappy,
        tls=negotiates and asked["tls_v1"] and limits.has_tls,
        tells_ids=negotiates and asked[TELLS_IDS],
        may_reject=negotiates and asked[MAY_REJECT],
    )


def _bad(text: str) -> ProtocolError:
    return ProtocolError("E_BAD_BODY", f"IDENTIFY {text}")


def _decode(body: bytes) -> dict[str, Any]:
    try:
        asked = decode_record(body, _STRINGS, _INTEGERS, _BOOLEANS)
    except ValueError:
        raise _bad("failed to decode JSON body") from None
    for name in _STRINGS:
        if len(asked[name].encode("utf-8", "surrogatepass")) > STRING_SIZE_MAX:
            raise _bad(f"{name} is longer than {STRING_SIZE_MAX} bytes")
    return asked


def _heartbeat(asked_ms: int, limits: Limits) -> int:
    if asked_ms == -1:
        return 0
    if asked_ms == 0:
        return HEARTBEAT_NS
    if not HEARTBEAT_MS_MIN <= asked_ms <= limits.max_heartbeat_interval_ns // MS:
        raise _bad(f"heartbeat interval ({asked_ms}) is invalid")
    return asked_ms * MS


def _output_timeout(asked_ms: int, limits: Limits) -> int:
    if asked_ms == -1:
        return 0
    if asked_ms == 0:
        return limits.output_buffer_timeout_ns
    smallest, largest = limits.min_output_buffer_timeout_ns, limits.max_output_buffer_timeout_ns
    if not smallest <= asked_ms * MS <= largest:
        raise _bad(f"output buffer timeout ({asked_ms}) is invalid")
    return asked_ms * MS


def _output_size(asked: int, limits: Limits) -> int:
    if asked == -1:
        return 1
    if asked == 0:
        return OUTPUT_BUFFER_SIZE
    if not OUTPUT_BUFFER_SIZE_MIN <= asked <= limits.max_output_buffer_size:
        raise _bad(f"output buffer size ({asked}) is invalid")
    return asked


def _deflate_level(asked: int, limits: Limits) -> int:
    return min(asked if asked > 0 else DEFLATE_LEVEL, limits.max_deflate_level)


def _msg_timeout(asked_ms: int, limits: Limits) -> int:
    if asked_ms == 0:
        return limits.msg_timeout_ns
    if not MSG_TIMEOUT_MS_MIN <= asked_ms <= limits.max_msg_timeout_ns // MS:
        raise _bad(f"msg timeout ({asked_ms}) is invalid")
    return asked_ms * MS
