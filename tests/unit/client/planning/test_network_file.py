"""The planner reads the links that network-check measured."""

import json
from pathlib import Path
from typing import Any

import pytest

from training_service.client.planning import network_file
from training_service.client.planning.network_file import Links


def pair(source: int, destination: int, latency: float, bandwidth: float) -> dict[str, Any]:
    return {
        "source": source,
        "destination": destination,
        "latency_s": latency,
        "bandwidth_bytes_per_s": bandwidth,
        "sizes": [],
    }


MEASURED = {
    "format": "network/1",
    "instances": [{"instance": 0, "host": "a", "ranks": [0, 1]}, {"instance": 1, "host": "b", "ranks": [2]}],
    "pairs": [pair(0, 1, 1e-6, 1e10), pair(0, 2, 1e-4, 1e8), pair(1, 2, 3e-4, 3e8), pair(2, 1, 2e-4, 2e8)],
}


def read(folder: Path, document: Any) -> network_file.Network:
    path = folder / "network.json"
    path.write_text(json.dumps(document))
    return network_file.read(path)


def test_links_within_a_machine_and_between_machines_are_apart(tmp_path: Path) -> None:
    found = read(tmp_path, MEASURED)
    assert (found.inner, found.outer) == (Links(1e-6, 1e10), Links(2e-4, 2e8))


def test_a_kind_of_link_that_was_not_measured_is_missing(tmp_path: Path) -> None:
    found = read(tmp_path, MEASURED | {"pairs": [pair(0, 2, 1e-4, 1e8)]})
    assert (found.inner, found.outer) == (None, Links(1e-4, 1e8))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"format": "network/2"}, "has the format 'network/2'"),
        ({"pairs": []}, "no pair of ranks was measured"),
        ({"pairs": [pair(0, 9, 1, 1)]}, "has a rank that no instance has"),
        ({"pairs": [pair(0, 2, 1e-4, 0)]}, "a bandwidth of 0 bytes/s"),
        ({"pairs": [pair(0, 2, -1, 1e8)]}, "a latency of -1 s"),
        ({"pairs": [{"source": 0, "destination": 1}]}, "lacks a field"),
        ({"instances": 3}, "another type"),
        ({"pairs": [pair(0, 2, 1e-4, "much")]}, "could not convert"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_file_is_refused_with_the_reason(
    tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        read(tmp_path, MEASURED | change)
