"""The key of a caller without a name: its address, without the parts that the caller can choose."""

import pytest

from job_tracker.common.addresses import network_of


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("ipv4:192.0.2.1", "ipv4:192.0.2.1"),
        ("ipv6:2001:db8:1:2:3:4:5:6", "ipv6:2001:db8:1:2::/64"),
        ("ipv6:2001:db8:1:2::1", "ipv6:2001:db8:1:2::/64"),
        ("ipv6:::1", "ipv6:::/64"),
        ("ipv6:nonsense", "ipv6:nonsense"),
        ("unix", "unix"),
        ("", ""),
    ],
)
def test_addresses_of_an_ipv6_network_count_as_one(address: str, network: str) -> None:
    assert network_of(address) == network
