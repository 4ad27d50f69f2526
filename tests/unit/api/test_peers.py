"""The host of a caller, without the port of its connection."""

import pytest

from training_service.api.peers import peer_host


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:192.0.2.1:4242", "ipv4:192.0.2.1"),
        ("192.0.2.1:4242", "ipv4:192.0.2.1"),
        ("ipv6:[2001:db8:1:2:3:4:5:6]:4242", "ipv6:2001:db8:1:2:3:4:5:6"),
        ("ipv6:%5B2001:db8:1:2::1%5D:4242", "ipv6:2001:db8:1:2::1"),
        ("ipv6:%5B::ffff:192.0.2.1%5D:4242", "ipv4:192.0.2.1"),
        ("ipv6:%5Bfe80::1%25eth0%5D:4242", "ipv6:fe80::1"),
        ("ipv6:%5B::1%5D:4242", "ipv6:::1"),
        ("ipv6:[::1]:4242", "ipv6:::1"),
        ("[::1]:4242", "ipv6:::1"),
        ("ipv6:[::1]", "ipv6:::1"),
        ("ipv6:::1", "ipv6:::1"),
        ("unix:", "unix"),
        ("unix:/run/service.sock", "unix"),
        ("unix:[::1", "unix"),
        ("", ""),
        ("nonsense", "nonsense"),
    ],
)
def test_the_whole_address_of_a_host_stands_without_its_port(peer: str, host: str) -> None:
    assert peer_host(peer) == host
