"""Computes the requests that the template of an algorithm adds to its pods, with a pure function."""

from collections.abc import Mapping
from typing import Any

from job_tracker.backends.kubernetes.options import CONTAINER
from job_tracker.backends.kubernetes.quantities import requested
from job_tracker.backends.kubernetes.strategic_merge import merged
from job_tracker.catalog.syntax import CPU


def requested_beside(template: Mapping[str, Any], resources: Mapping[str, str]) -> dict[str, str]:
    """Return the quantities that a pod with the template requests in addition to its training container.

    `resources` are the requests of the training container.
    """
    if not template:
        return {}
    container = {"name": CONTAINER, "resources": {"requests": dict(resources)}}
    plain: dict[str, Any] = {"spec": {"containers": [container]}}
    before, after = requested(plain), requested(merged(plain, template))
    more = {name: amount - before.get(name, 0) for name, amount in after.items()}
    return {name: f"{n}m" if name == CPU else str(n) for name, n in more.items() if n > 0}
