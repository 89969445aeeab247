"""What an nsqd says to a Direct: however it comes, the outcome is the same, and as the model says.

The input is a byte that says how to cut, one that says how many bytes lie there before the publish (255 = all, and
the end), and the stream.
"""

import contextlib
import socket
import threading

from nsqfast._ext.client.direct import Direct

from fuzz.common import guarded, pieces
from nsqfast.errors import ConnectError, NsqfastError, OutcomeUnknownError, PublishRefusedError
from support.wire import ERROR, MESSAGE, RESPONSE, encode_command, encode_frame

FRAME_SIZE_MAX = 1 << 30
TIMEOUT_S = 30.0
PUB = encode_command("PUB", "t", body=b"body")
NOP = b"NOP\n"
WORDS = [
    *(encode_frame(RESPONSE, data) for data in (b"OK", b"_heartbeat_", b"")),
    *(encode_frame(ERROR, data) for data in (b"E_PUB_FAILED x", b"E_BAD_TOPIC \xff")),
    *(encode_frame(MESSAGE, bytes(30)), b"\0\0\0\3", b"\x40\0\0\1", b"\0\0\0\4\0\0\0\x09"),
]


def seeds():
    ok, beat, _, failed, refused, message, small, large, strange = WORDS
    streams = [
        ok,
        beat * 3 + ok + beat,
        beat + failed,
        refused + ok,
        message,
        beat + small,
        large,
        beat * 2 + strange,
        ok[:9],
        b"",
        encode_frame(RESPONSE, b"x" * 3000),
    ]
    found = [bytes([i, lying]) + data for i, data in enumerate(streams) for lying in (0, 255)]
    return [*found, b"\3\x14" + ok * 3]


def run(stream, pattern, lying):
    """(outcome, what nsqd got)"""
    ours, theirs = socket.socketpair()
    with theirs:
        got = []
        early = stream if lying == 255 else stream[:lying]
        theirs.sendall(early)
        if lying == 255:
            theirs.shutdown(socket.SHUT_WR)
        direct = Direct(ours.detach())
        rest = pieces(stream[len(early) :], pattern)
        thread = threading.Thread(target=play, args=(theirs, rest, got))
        thread.start()
        outcome = ask(direct)
        direct.close()
        thread.join()
    return outcome, b"".join(got)


def play(theirs, rest, got):
    """Takes the publish, says the rest, and takes what comes until the other side hangs up."""
    theirs.settimeout(TIMEOUT_S)
    with contextlib.suppress(ConnectionError):
        got.append(theirs.recv(len(PUB), socket.MSG_WAITALL))
        for piece in rest:
            theirs.sendall(piece)
        theirs.shutdown(socket.SHUT_WR)
    with contextlib.suppress(ConnectionError):
        while data := theirs.recv(65536):
            got.append(data)


def ask(direct):
    try:
        answer = direct.ask(b"PUB t\n", b"body", TIMEOUT_S)
    except NsqfastError as error:
        assert not direct.is_open
        assert str(error) == str(direct.error)
        return type(error), str(error)
    assert direct.is_open
    return answer


def frames(stream):
    """(type, data, where its decisive byte ends) of each; a size that none can have is of type None."""
    place = 0
    while len(stream) - place >= 4:
        size = int.from_bytes(stream[place : place + 4], "big")
        if not 4 <= size <= FRAME_SIZE_MAX:
            yield None, b"", place + 4
            return
        if len(stream) - place < 4 + size:
            return
        kind = int.from_bytes(stream[place + 4 : place + 8], "big")
        yield kind, stream[place + 8 : place + 4 + size], place + 4 + size
        place += 4 + size


def expected(stream, lying):
    """(class of the error or the answer, how many heartbeats come before)"""
    beats = 0
    for kind, data, end in frames(stream):
        if (kind, data) == (RESPONSE, b"_heartbeat_"):
            beats += 1
        elif end <= lying or lying == 255:
            return ConnectError, beats
        elif kind == RESPONSE:
            return data, beats
        else:
            return (PublishRefusedError if kind == ERROR else OutcomeUnknownError), beats
    return (ConnectError if lying == 255 else OutcomeUnknownError), beats


@guarded
def check(data):
    if len(data) < 2:
        return
    pattern, lying, stream = data[0], data[1], data[2:]
    wanted, beats = expected(stream, lying)
    outcomes = []
    for cut in (0, 1, pattern):
        outcome, got = run(stream, cut, lying)
        outcomes.append(outcome)
        assert (outcome if isinstance(outcome, bytes) else outcome[0]) == wanted, (outcome, wanted)
        if wanted is ConnectError:
            assert got == b""
        else:
            said = got.removeprefix(PUB)
            assert len(said) == len(got) - len(PUB)
            assert said == NOP * (len(said) // 4)
            assert len(said) <= beats * 4
    assert outcomes == [outcomes[0]] * 3, outcomes
