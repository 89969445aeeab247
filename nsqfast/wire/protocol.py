"""The numbers of NSQ's protocols, for Python; compiled code has them in _ext/core/limits.pxd. A test compares both."""

from typing import Final

MAGIC_V1: Final = b"  V1"  # nsqd to nsqlookupd
MAGIC_V2: Final = b"  V2"  # a client to nsqd

FRAME_RESPONSE: Final = 0
FRAME_ERROR: Final = 1
FRAME_MESSAGE: Final = 2

MESSAGE_ID_SIZE: Final = 16
# A key of IDENTIFY and its answer that no client of NSQ knows: who sends it may be told the ids of deferred messages.
TELLS_IDS: Final = "nsqfast_deferred_ids"
# The same for who may send REJ, and say why a message failed.
MAY_REJECT: Final = "reject"
LENGTH_SIZE: Final = (
    4  # of a body's length, of an MPUB's count, and of the size before each of its bodies
)
LINE_SIZE_MAX: Final = 16384  # of a command, its newline included
MPUB_SIZE_MAX: Final = 0x7FFFFFFF  # lengths have 31 bits

HEARTBEAT: Final = b"_heartbeat_"
