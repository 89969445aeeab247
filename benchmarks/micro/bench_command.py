"""Lines as clients send them. A thousand commands a call: its microseconds are nanoseconds per command."""

import pytest
from nsqfast._ext.dev.loops import parse_commands
from pytest_benchmark.fixture import BenchmarkFixture

MESSAGES = 1000
ID = 0x0DBF_25A1_C3C0_1000
BODY = b"x" * 200

# One command, and the number in it that parsing must find.
COMMANDS = {
    "FIN": (b"FIN %016x\n" % ID, ID),
    "PUB": (b"PUB orders\n%s%s" % (len(BODY).to_bytes(4, "big"), BODY), len(BODY)),
    "RDY": (b"RDY 2500\n", 2500),
}


@pytest.mark.parametrize("name", COMMANDS)
def bench_parse(benchmark: BenchmarkFixture, name: str) -> None:
    benchmark.extra_info["messages"] = MESSAGES
    command, number = COMMANDS[name]
    found = benchmark(parse_commands, command * MESSAGES)
    assert found == (MESSAGES, number * MESSAGES % (1 << 64))
