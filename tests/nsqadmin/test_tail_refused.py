"""The tail of an nsqd that wants TLS or AUTH: the page says why there is none, in a line."""

import contextlib
import http.client
import json

import pytest

from support.admin import start_nsqadmin, text_of, told, wait_for_channel
from support.authd import AuthServer
from support.certificates import Certificates
from support.server import start_nsqd
from support.web import get

pytestmark = [pytest.mark.slow, pytest.mark.soak]

REASONS = {
    "TLS": "nsqd wants TLS, and a tail comes without (E_INVALID cannot SUB in current state (TLS required))",
    "AUTH": "nsqd wants AUTH, and a tail has no secret (E_AUTH_FIRST nsqd wants an auth_secret)",
}


@pytest.fixture(params=["nsqfast", pytest.param("go", marks=pytest.mark.go)])
def implementation(request):
    return request.param


@contextlib.contextmanager
def started(implementation, folder, wanted):
    """An nsqd with a topic; `wanted` says what it asks of consumers."""
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        flags = []
        if wanted == "TLS":
            flags = [*Certificates(folder).flags(), "--tls-required=tcp-https"]
        elif wanted == "AUTH":
            flags = [f"--auth-http-address={stack.enter_context(AuthServer()).address}"]
        nsqd = stack.enter_context(start_nsqd(implementation, folder, *flags))
        told(nsqd, "/topic/create?topic=orders")
        told(nsqd, "/channel/create?topic=orders&channel=billing")
        yield nsqd


@contextlib.contextmanager
def tail(admin):
    """The answer to the start of a tail."""
    connection = http.client.HTTPConnection(*admin.http, timeout=20)
    try:
        connection.request(
            "POST", "/ui/tail", b'{"topic": "orders"}', {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        yield answer
        answer.close()
    finally:
        connection.close()


@pytest.mark.parametrize("wanted", REASONS)
def test_a_tail_that_nsqd_refuses_says_why(implementation, wanted, tmp_path):
    with (
        started(implementation, tmp_path / "nsqd", wanted) as nsqd,
        start_nsqadmin("nsqfast", "--poll-interval=200ms", nsqds=[nsqd]) as admin,
    ):
        wait_for_channel(admin, "orders", "billing", 1)
        with tail(admin) as answer:
            assert answer.status == 409
            assert json.loads(answer.read()) == {"message": REASONS[wanted]}
        assert "Traceback" not in admin.stderr
        channels = get(nsqd.http, "/stats?format=json").json()["topics"][0]["channels"]
        assert [channel["channel_name"] for channel in channels] == ["billing"]


@pytest.mark.parametrize("wanted", REASONS)
def test_the_others_are_tailed_and_the_one_that_refuses_is_named(implementation, wanted, tmp_path):
    with (
        started(implementation, tmp_path / "wants", wanted) as nsqd,
        started("nsqfast", tmp_path / "open", "") as other,
        start_nsqadmin("nsqfast", "--poll-interval=200ms", nsqds=[nsqd, other]) as admin,
    ):
        wait_for_channel(admin, "orders", "billing", 2)
        with tail(admin) as answer:
            assert answer.status == 200
            told(other, "/pub?topic=orders", b"hello")
            found, status = False, {}
            while not (found and "(E_" in str(status.get("silent"))):  # first: not connected yet
                name, data, _ = (answer.readline().decode() for _ in range(3))
                found = found or "message" in name
                status = json.loads(data[6:]) if "status" in name else status
            assert status["nodes"] == 1
            assert status["silent"] == [f"{text_of(nsqd.tcp)}: {REASONS[wanted]}"]
        assert "Traceback" not in admin.stderr
