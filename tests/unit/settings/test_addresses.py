"""Addresses to listen at: their form, and the messages for invalid addresses."""

import pytest

from training_service.settings.loading import SettingsError, load

FORM = "it must be HOST:PORT, such as 127.0.0.1:51001, localhost:51001 or [::1]:51001"


@pytest.mark.parametrize(
    "address", ["127.0.0.1:51001", "localhost:0", "[::1]:1", "0.0.0.0:65535", "training.example:443"]
)
def test_host_and_port_are_allowed(address: str) -> None:
    flags = {"server": {"address": address, "insecure": True}}
    assert load(flags=flags).server.address == address


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        *(
            (address, FORM)
            for address in ("127.0.0.1", "localhost", "localhost:", ":1", "[::1]", "::1", "a b:1")
        ),
        ("localhost:65536", "the port must be from 0 to 65535"),
        ("localhost:123456", FORM),
    ],
)
def test_other_addresses_are_refused_with_the_form_that_is_allowed(address: str, problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(flags={"server": {"address": address}})
    assert str(caught.value) == f"command line: server.address: '{address}' is not allowed: {problem}"
