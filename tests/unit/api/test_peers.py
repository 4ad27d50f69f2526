"""The key of a caller: its address, without the parts that the caller can choose."""

import pytest

from training_service.api.peers import peer_host


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:192.0.2.1:4242", "ipv4:192.0.2.1"),
        ("ipv6:[2001:db8:1:2:3:4:5:6]:4242", "ipv6:2001:db8:1:2::/64"),
        ("ipv6:%5B2001:db8:1:2::1%5D:4242", "ipv6:2001:db8:1:2::/64"),
        ("ipv6:%5B::ffff:192.0.2.1%5D:4242", "ipv4:192.0.2.1"),
        ("ipv6:%5Bfe80::1%25eth0%5D:4242", "ipv6:fe80::/64"),
        ("ipv6:%5B::1%5D:4242", "ipv6:::/64"),
        ("unix:", "unix"),
        ("unix:/run/service.sock", "unix"),
        ("", ""),
        ("nonsense", "nonsense"),
    ],
)
def test_a_caller_is_identified_by_its_host_or_ipv6_network(peer: str, host: str) -> None:
    assert peer_host(peer) == host
