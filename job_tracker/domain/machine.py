"""A machine of an engine, as its backend sees it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from job_tracker.domain.group import Place

INSTANCES: Final = "instances"
"""The resource of which every instance takes one unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine of a flavor.

    Resources are whole numbers by name: `cpu` is in thousandths, `memory` and `ephemeral-storage` are in
    bytes, and `instances` and other resources in units. If a resource is not named, the machine has none of
    it.
    """

    name: str
    flavor: str
    capacity: Mapping[str, int]
    """The resources that all jobs of this service together may use at present."""
    most: Mapping[str, int]
    """The resources that all jobs of this service together may use once the pods that do not belong to the
    service have ended.

    Pods that never end, such as daemons, keep their resources.
    """
    is_open: bool = True
    """Whether instances may start on the machine. False, for example, while it does not answer."""
    labels: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[Place, str] = field(default_factory=dict)
    """The names of the machine's places, such as its rack, by kind. Unknown places are left out."""
