"""Programs that serve HTTP but are no broker: they start, and answer /metrics, without any code of one.

Nor does an nsqlookupd without a certificate load what speaks TLS.
"""

import re
import sys

import pytest

from support.tools import Tool
from support.web import get

# The rooms above _ext/protocol, and what makes a broker of them.
BROKER = re.compile(r"nsqfast\.(nsqd|_ext\.(disk|storage|broker|server))(\.|$)")
TLS = {"nsqfast.net.tls", "nsqfast.net.tls_protocol", "nsqfast.streams.tls"}
RUN = """
import atexit, importlib, sys
atexit.register(lambda: print(*sys.modules, sep="\\n"))
sys.exit(importlib.import_module(sys.argv[1]).main(sys.argv[2:]))
"""
CONSUMER = ("--nsqd-tcp-address=127.0.0.1:1", "--topic=t", "--metrics-address=127.0.0.1:0")


@pytest.mark.parametrize(
    ("program", "flags"),
    [
        ("nsqlookupd", ("--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0")),
        ("tools.nsq_to_file", (*CONSUMER, "--output-dir={}")),
        ("spark.receiver", (*CONSUMER, "--channel=c", "--spool={}")),
    ],
)
def test_no_code_of_a_broker_is_loaded(program, flags, tmp_path):
    module = f"nsqfast.{program}.main"
    words = [flag.format(tmp_path) for flag in flags]
    with Tool([sys.executable, "-c", RUN, module, *words]) as running:
        place = re.compile(rb"(?:HTTP|metrics): listening on ([\d.]+):(\d+)")
        running.wait_for(lambda it: place.search(it.err))
        host, port = place.search(running.err).groups()
        assert get((host.decode(), int(port)), "/metrics").status == 200
        assert running.end() == 0, running.text
    loaded = running.out.decode().splitlines()
    assert {"nsqfast.net.http_server", module} <= {*loaded}
    assert [name for name in loaded if BROKER.match(name)] == []
    if program == "nsqlookupd":
        assert {*loaded} & TLS == set()
