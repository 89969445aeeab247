"""Networks of flags."""

import pytest

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin.access.cidr import Networks


@pytest.mark.parametrize(
    ("networks", "address", "is_in"),
    [
        (["10.0.0.0/8"], "10.1.2.3", True),
        (["10.0.0.0/8"], "11.0.0.1", False),
        (["127.0.0.1/8"], "127.9.9.9", True),
        (["10.0.0.0/8"], "::ffff:10.1.2.3", True),
        (["fd00::/8"], "fd00::1%eth0", True),
        (["fd00::/8"], "fe80::1", False),
        (["::/0"], "10.1.2.3", False),
        (["192.0.2.7"], "192.0.2.7", True),
        (["192.0.2.7"], "192.0.2.8", False),
        (["10.0.0.0/8", "192.0.2.0/24"], "192.0.2.8", True),
        ([], "127.0.0.1", False),
        (["0.0.0.0/0"], "", False),
        (["0.0.0.0/0"], "unix", False),
    ],
)
def test_addresses_are_in_networks(networks, address, is_in):
    assert (address in Networks(networks, "--flag")) is is_in


@pytest.mark.parametrize("text", ["10.0.0.0/33", "host/8", "", "10.0.0.0/8,11.0.0.0/8"])
def test_what_is_no_network_names_the_flag(text):
    with pytest.raises(OptionsError, match="^failed to parse --flag: "):
        Networks([text], "--flag")
