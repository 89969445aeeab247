"""An nsqd with many topics that leaves an nsqlookupd."""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING

from growth.attacks import wait_until
from growth.probing import Probed
from growth.wire import SECONDS_MAX, Web, address_of
from nsqfast.wire.protocol import MAGIC_V1
from server.lookupd_protocol import OK, identify, read_exactly, read_identity

if TYPE_CHECKING:
    from server.broker import Broker
    from server.loads import Sample


def leave_lookupd(lookupd: Broker, topics: int) -> Sample:
    """Wait until none of its topics has a producer."""
    one = registered(lookupd.tcp, topics)
    with Probed(lookupd.tcp, "nsqlookupd") as probed:
        one.close()
        with Web(lookupd.http) as web:
            wait_until(lambda: not json.loads(web.get("/nodes"))["producers"])
    return probed.sample


def registered(tcp: str, topics: int) -> socket.socket:
    """Return the connection of a node that has registered all its topics."""
    one = socket.create_connection(address_of(tcp), SECONDS_MAX)
    lines = "".join(f"REGISTER topic{number}\n" for number in range(topics)).encode()
    one.sendall(MAGIC_V1 + identify("10.0.0.1"))
    read_identity(one)
    sender = threading.Thread(target=one.sendall, args=(lines,))
    sender.start()
    answers = read_exactly(one, len(OK) * topics)
    sender.join()
    assert answers == OK * topics
    return one
