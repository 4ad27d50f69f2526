"""Chooses the queue, the priority and the flavor of a requested job, and checks that the job can start."""

from dataclasses import replace
from datetime import timedelta
from typing import Final, Protocol

from job_tracker.catalog.entries import listed
from job_tracker.catalog.job_defaults import duration
from job_tracker.catalog.parameters import INSTANCES_PARAMETER
from job_tracker.common.printable import quoted
from job_tracker.domain.errors import InvalidField, UnknownReference
from job_tracker.domain.job_spec import JobSpec
from job_tracker.scheduling.checks import fits_ever
from job_tracker.scheduling.gangs import gang_of
from job_tracker.scheduling.model import Gang
from job_tracker.scheduling.tree import Tree, pool_of, tree_of

_MOST_VERDICTS: Final = 1024


class Queues(Protocol):
    """The queues that are declared."""

    @property
    def tree(self) -> Tree:
        """The present tree of all queues."""
        ...


class OneQueue:
    """One queue for all projects."""

    def __init__(self, instances: int) -> None:
        """`instances` is the number of instances that may run at the same time."""
        self.tree = tree_of(pool_of({}, instances), {})


def queue_of(tree: Tree, project: str, name: str) -> str:
    """Return the queue of a job of the project: `name`, or the project's default queue if `name` is empty.

    Raises UnknownReference if the project has no queue of this name; a queue that only other projects may use
    is treated as unknown. Raises InvalidField if jobs cannot wait in the queue, or if `name` is empty and the
    project may not use its default queue.
    """
    wanted = name or tree.default_of(project)
    if wanted not in tree.queues or not tree.allows(wanted, project):
        allowed = tree.of_project(project)
        may_use = f"project {project} may use: {listed(allowed)}"
        if any(wanted in tree.up_from(each) for each in allowed):
            raise InvalidField(
                "queue", f"{quoted(wanted)} is not allowed: it is the parent of other queues; {may_use}"
            )
        if not name:
            raise InvalidField(
                "queue", f"must not be empty: project {project} may not use {quoted(wanted)}; {may_use}"
            )
        raise UnknownReference("queue", f"{quoted(wanted)} doesn't exist; {may_use}")
    if problem := tree.problems.get(wanted):
        raise InvalidField("queue", f"{quoted(wanted)} cannot be used: {problem}")
    return wanted


def priority_of(tree: Tree, queue: str, sent: str) -> int:
    """Return the priority as a number.

    `sent` is the text in the request: the name of a priority class, a number (as in a request that repeats an
    earlier job), or empty. If `sent` is empty, the priority is 0, or the queue's highest allowed priority if
    this is below 0. Raises InvalidField if `sent` is not a priority, or if the queue does not allow the
    priority.
    """
    classes, most = tree.pool.priorities, tree.max_priority_of(queue)
    if not sent:
        return 0 if most is None else min(0, most)
    number = classes.get(sent)
    if number is None and sent.removeprefix("-").isdecimal() and len(sent) < 12:
        given = int(sent)
        number = given if min([0, *classes.values()]) <= given <= max([0, *classes.values()]) else None
    allowed = {name for name, each in classes.items() if most is None or each <= most}
    if number is None:
        raise InvalidField("priority", f"{quoted(sent)} is not a priority; allowed: {listed(allowed)}")
    if most is not None and number > most:
        raise InvalidField(
            "priority", f"{quoted(sent)} is not allowed in queue {queue}; allowed: {listed(allowed)}"
        )
    return number


def expected_of(seconds: float | None) -> timedelta | None:
    """Return how long an attempt is expected to run.

    None: the request does not state it. Raises InvalidField if the time is not allowed.
    """
    if seconds is None:
        return None
    expected = duration("expected", seconds)
    if not expected:
        raise InvalidField("expected", f"{seconds:g} s is not allowed: it must be more than 0")
    return expected


def flavor_of(tree: Tree, name: str) -> str:
    """Return `name`, the flavor that a job asks for; "" stands for any flavor.

    Raises UnknownReference if there is no such flavor.
    """
    flavors = [flavor.name for flavor in tree.pool.flavors]
    if name and name not in flavors:
        raise UnknownReference("flavor", f"{quoted(name)} doesn't exist; allowed: {listed(flavors)}")
    return name


def check_fit(tree: Tree, spec: JobSpec) -> None:
    """Raise InvalidField if the job can never start.

    If at least one trainer could start, the message has the largest number of trainers that could start.
    """
    gang = gang_of(0, spec, None)
    # The result is cached: with many queues, the check takes milliseconds, and most jobs ask for the same
    # resources as earlier jobs.
    key = (
        gang.queue,
        gang.flavors,
        gang.least,
        *((part.count, part.where, *part.each.items()) for part in gang.parts),
    )
    if key not in tree.verdicts:
        if len(tree.verdicts) >= _MOST_VERDICTS:
            tree.verdicts.clear()
        tree.verdicts[key] = fits_ever(tree.queues, tree.pool.flavors, gang)
    if (problem := tree.verdicts[key]) is not None:
        raise InvalidField(_field_of(tree, spec, gang), f"{problem.summary} {problem.resolution}")


def _field_of(tree: Tree, spec: JobSpec, gang: Gang) -> str:
    """Return the name of the request's field because of which the job can never start."""
    trainers, *others = gang.parts
    smallest = replace(gang, parts=(replace(trainers, count=1), *others), least=0)
    if fits_ever(tree.queues, tree.pool.flavors, smallest) is None:
        return f"parameters.{INSTANCES_PARAMETER}"
    if spec.flavor and fits_ever(tree.queues, tree.pool.flavors, replace(smallest, flavors=())) is None:
        return "flavor"
    return "pod_options.resources" if spec.pod_options.resources else "queue"
