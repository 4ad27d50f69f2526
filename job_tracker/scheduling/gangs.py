"""Makes gangs from jobs. A gang has the needs of a job in the units of the planner."""

from collections.abc import Mapping
from functools import lru_cache
from math import ceil

from job_tracker.catalog.syntax import BYTES, CPU, amount
from job_tracker.domain.group import GroupSpec, InstanceOptions
from job_tracker.domain.job_spec import JobSpec
from job_tracker.scheduling.model import ANYWHERE, INSTANCES, Expected, Gang, Part, Resources, Where

_THOUSANDTHS = 1000
_SIZES = tuple((f"{prefix}i", 1024**power) for power, prefix in ((4, "T"), (3, "G"), (2, "M"), (1, "K")))


def gang_of(job_id: int, spec: JobSpec, expected: Expected | None) -> Gang:
    """Return the gang of a job: the trainers first, then other roles in the order of ranks."""
    parts = parts_of(spec.group)
    elastic = spec.group.elastic
    return Gang(
        job_id=job_id,
        queue=spec.queue,
        priority=spec.priority,
        parts=parts,
        least=min(elastic.min_instances, parts[0].count) if elastic else 0,
        flavors=(spec.flavor,) if spec.flavor else (),
        expected=expected,
    )


def parts_of(group: GroupSpec) -> tuple[Part, ...]:
    """Return the parts of a group: the trainers (master and workers are one part), then a part for each
    other role.
    """
    trainers = sum(count for role, count in group.roles.items() if role not in group.others)
    counts = {"": trainers, **{role: count for role, count in group.roles.items() if role in group.others}}
    return tuple(
        _part(count, (*instance.resources.items(), *instance.beside.items()), where_of(instance))
        for role, count in counts.items()
        if count
        for instance in [group.instance(role)]
    )


def where_of(instance: InstanceOptions) -> Where:
    """Return the conditions for the machines on which an instance with these options may run."""
    placement = instance.placement
    if placement is None and not instance.node_selector:
        return ANYWHERE
    return Where(
        selector=tuple(sorted(instance.node_selector.items())),
        near=placement.near if placement else None,
        apart=placement.apart if placement else None,
        strict=placement.strict if placement else False,
    )


def units(resource: str, quantity: str) -> int:
    """Return a quantity in the units of the planner: thousandths of `cpu`, bytes, or whole devices.

    Fractions of a unit are rounded up. Raises ValueError if the text is not a quantity.
    """
    number = amount(quantity)
    return ceil(number * _THOUSANDTHS if resource == CPU else number)


def is_device(resource: str) -> bool:
    """Return whether a resource is a kind of device, such as nvidia.com/gpu, that most machines lack."""
    return "/" in resource


def units_of(quantities: Mapping[str, str]) -> dict[str, int]:
    """Return quantities by resource in the units of the planner."""
    return {resource: units(resource, quantity) for resource, quantity in quantities.items()}


def quantity_of(resource: str, number: int) -> str:
    """Return a number in the units of the planner as a quantity. This is the inverse of `units`.

    For example, 1500 thousandths of `cpu` are "1500m".
    """
    if resource == CPU:
        return f"{number}m" if number % _THOUSANDTHS else str(number // _THOUSANDTHS)
    if resource in BYTES:
        for suffix, size in _SIZES:
            if number and not number % size:
                return f"{number // size}{suffix}"
    return str(number)


def listed_amounts(amounts: Resources) -> str:
    """Return amounts as text for people, such as "4 instances, 8 nvidia.com/gpu"."""
    return ", ".join(_amount(name, number) for name, number in amounts.items() if number)


def _amount(name: str, number: int) -> str:
    return "1 instance" if name == INSTANCES and number == 1 else f"{quantity_of(name, number)} {name}"


# Many jobs ask for the same resources. If they share their parts, a long queue takes less memory.
@lru_cache(maxsize=4096)
def _part(count: int, quantities: tuple[tuple[str, str], ...], where: Where) -> Part:
    return Part(count, _each(quantities), where)


@lru_cache(maxsize=4096)
def _each(quantities: tuple[tuple[str, str], ...]) -> Resources:
    each = {INSTANCES: 1}
    for resource, quantity in quantities:
        each[resource] = each.get(resource, 0) + units(resource, quantity)
    return each
