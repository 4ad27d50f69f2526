"""Reads the measured network of `network-check` (network.json) for `trainctl plan`."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

FORMAT = "network/1"


@dataclass(frozen=True)
class Links:
    """The latency of links in seconds, and their bandwidth in bytes a second."""

    latency: float
    bandwidth: float


@dataclass(frozen=True)
class Network:
    """The measured links within machines (`inner`) and between machines (`outer`): the medians of all pairs.

    None: no such pair was measured.
    """

    inner: Links | None
    outer: Links | None


def read(path: Path) -> Network:
    """Read a network.json. Raises ValueError, which names the file and the problem."""
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"'{path}' cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"'{path}' is not valid JSON: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else None
        raise ValueError(
            f"'{path}' has the format {found!r}; it must be {FORMAT!r}, as network-check writes it"
        )
    try:
        return _network(document)
    except (KeyError, TypeError) as error:
        raise ValueError(f"'{path}' lacks a field or has one of another type: {error!r}") from error
    except ValueError as error:
        raise ValueError(f"'{path}': {error}") from error


def _network(document: Mapping[str, Any]) -> Network:
    hosts = {int(rank): str(each["host"]) for each in document["instances"] for rank in each["ranks"]}
    kinds: dict[bool, list[Links]] = {True: [], False: []}
    for pair in document["pairs"]:
        source, destination = pair["source"], pair["destination"]
        if source not in hosts or destination not in hosts:
            raise ValueError(f"the pair {source}, {destination} has a rank that no instance has")
        link = Links(float(pair["latency_s"]), float(pair["bandwidth_bytes_per_s"]))
        if not (math.isfinite(link.latency) and link.latency >= 0 and 0 < link.bandwidth < math.inf):
            raise ValueError(
                f"the pair {source}, {destination} has a latency of {link.latency:g} s and a bandwidth of "
                f"{link.bandwidth:g} bytes/s; both must be finite, the latency at least 0, and the bandwidth "
                "above 0"
            )
        kinds[hosts[source] == hosts[destination]].append(link)
    if not any(kinds.values()):
        raise ValueError("no pair of ranks was measured: network-check needs at least two ranks")
    return Network(_middle(kinds[True]), _middle(kinds[False]))


def _middle(links: list[Links]) -> Links | None:
    if not links:
        return None
    return Links(median(link.latency for link in links), median(link.bandwidth for link in links))
