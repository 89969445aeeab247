"""What a browser may not do at a daemon's HTTP port: neither for another site, nor under a name that leads here."""

import pytest

from support.prometheus import scrape
from support.server import start_nsqd, start_nsqlookupd
from support.web import request, topic_stats

EVIL = "evil.example"
CROSS_SITE = (403, '{"message":"CROSS_SITE"}')
UNKNOWN_HOST = (403, '{"message":"UNKNOWN_HOST"}')


def start(name, folder, *flags):
    return (
        start_nsqd("nsqfast", folder, *flags)
        if name == "nsqd"
        else start_nsqlookupd("nsqfast", *flags)
    )


@pytest.fixture(scope="module", params=["nsqd", "nsqlookupd"])
def daemon(request, tmp_path_factory):
    with start(request.param, tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with start_nsqd("nsqfast", tmp_path_factory.mktemp("data")) as server:
        yield server


def ask(server, method, target, body=None, **headers):
    answer = request(server.http, method, target, body, headers)
    return answer.status, answer.text


OTHERS = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://{own}"},
    {"oRiGiN": f"http://{EVIL}"},
    {"Origin": "null"},
    {"Origin": "http://{own}1"},
    {"Origin": "http://[::1"},
]
OWN = [
    {"Sec-Fetch-Site": "same-origin", "Origin": "http://{own}"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "HTTP://{own}"},
]


def fill_in(headers, server):
    own = "{}:{}".format(*server.http)
    return {name: value.replace("{own}", own) for name, value in headers.items()}


@pytest.mark.parametrize("headers", OTHERS)
def test_another_site_changes_nothing(daemon, headers):
    headers = fill_in(headers, daemon)
    assert ask(daemon, "POST", "/topic/create?topic=t", **headers) == CROSS_SITE
    assert ask(daemon, "GET", "/ping", **headers) == (200, "OK")


@pytest.mark.parametrize("headers", OWN)
def test_our_own_site(daemon, headers):
    assert ask(daemon, "POST", "/topic/create?topic=t", **fill_in(headers, daemon))[0] == 200


@pytest.mark.parametrize("headers", OTHERS)
def test_another_site_publishes_nothing(broker, topic, headers):
    """A plain publish is answered without the parser that reads all headers, once its topic is there."""
    assert ask(broker, "POST", f"/pub?topic={topic}", b"ours") == (200, "OK")
    assert (
        ask(broker, "POST", f"/pub?topic={topic}", b"x", **fill_in(headers, broker)) == CROSS_SITE
    )
    assert topic_stats(broker.http, topic)["message_count"] == 1


@pytest.mark.parametrize(
    "host", [EVIL, f"{EVIL}:4151", "localhost.evil.example", "fade.cafe", "127.0.0.1.evil.example"]
)
def test_a_name_that_leads_here(daemon, broker, topic, host):
    for method, target in (("GET", "/ping"), ("POST", "/topic/create?topic=t")):
        assert ask(daemon, method, target, Host=host) == UNKNOWN_HOST
    ask(broker, "POST", f"/pub?topic={topic}", b"ours")
    assert ask(broker, "POST", f"/pub?topic={topic}", b"x", Host=host) == UNKNOWN_HOST
    assert ask(broker, "GET", f"/topic/peek?topic={topic}", Host=host) == UNKNOWN_HOST
    assert topic_stats(broker.http, topic)["message_count"] == 1


@pytest.mark.parametrize(
    "host",
    ["localhost:4151", "LocalHost.", "a.localhost", "10.1.2.3:80", "[::1]:4151", "[fe80::1]"],
)
def test_names_and_addresses_of_this_machine(daemon, broker, topic, host):
    assert ask(daemon, "POST", "/topic/create?topic=t", Host=host)[0] == 200
    for body in (b"first", b"plain"):
        assert ask(broker, "POST", f"/pub?topic={topic}", body, Host=host) == (200, "OK")


@pytest.mark.parametrize("name", ["nsqd", "nsqlookupd"])
def test_allowed_host(name, tmp_path):
    """It adds names on a loopback address, and closes an address of all interfaces to other names."""
    for address in ("127.0.0.1:0", "0.0.0.0:0"):
        with start(
            name,
            tmp_path,
            f"--http-address={address}",
            "--allowed-host=Broker.example",
            "--allowed-host=b",
        ) as server:
            local = ("127.0.0.1", server.http[1])
            for host, status in (
                ("broker.example:4151", 200),
                ("b", 200),
                ("10.1.2.3", 200),
                (EVIL, 403),
            ):
                assert request(local, "GET", "/ping", headers={"Host": host}).status == status


def test_an_open_address_without_names(tmp_path):
    with start_nsqd("nsqfast", tmp_path, "--http-address=0.0.0.0:0") as server:
        local = ("127.0.0.1", server.http[1])
        assert request(local, "GET", "/ping", headers={"Host": EVIL}).status == 200
        assert (
            request(
                local, "POST", "/topic/create?topic=t", headers={"Origin": f"http://{EVIL}"}
            ).status
            == 403
        )


@pytest.mark.parametrize("text", ["http://a", "a:80", "", "a b"])
def test_what_is_no_name(text, tmp_path):
    with pytest.raises(AssertionError, match=r"--allowed-host \(.*\) has to be the name of a host"):
        start_nsqd("nsqfast", tmp_path, f"--allowed-host={text}")


def test_a_refusal_is_counted_and_said(daemon):
    daemon.forget_lines()
    before = scrape(daemon.http)
    assert ask(daemon, "POST", "/topic/create?topic=t", Origin='http://a"b') == CROSS_SITE
    assert ask(daemon, "POST", "/topic/create?topic=t", Host=EVIL) == UNKNOWN_HOST
    after = scrape(daemon.http)
    for reason in ("cross_site", "unknown_host"):
        assert (
            after.value("nsq_refused_total", reason=reason)
            - before.value("nsq_refused_total", reason=reason)
            == 1
        )
    daemon.wait_for_line(r'its Origin is "http://a\"b": only programs may do this')
    daemon.wait_for_line(f'its Host is "{EVIL}": --allowed-host adds a name')


def test_the_broadcast_address_is_a_name_of_its_own(tmp_path):
    """An nsqd asks its nsqlookupd under it for the channels of a new topic, on one machine, too."""
    for name in ("nsqd", "nsqlookupd"):
        with start(name, tmp_path, "--broadcast-address=Broker-1.example") as server:
            assert ask(server, "GET", "/ping", Host=f"broker-1.example:{server.http[1]}")[0] == 200
            assert (
                ask(server, "GET", "/ping", Host=f"broker-2.example:{server.http[1]}")
                == UNKNOWN_HOST
            )
