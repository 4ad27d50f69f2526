"""The tree of declared queues: checked against the flavors, and turned into the queues of the planner."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Final

from job_tracker.catalog.entries import listed
from job_tracker.common.printable import quoted
from job_tracker.domain.diagnosis import Diagnosis
from job_tracker.domain.naming import DEFAULT_QUEUE
from job_tracker.scheduling.gangs import is_device, units, units_of
from job_tracker.scheduling.model import (
    DEFAULT_FLAVOR,
    INSTANCES,
    Flavor,
    Limit,
    PreemptionRules,
    Queue,
)
from job_tracker.scheduling.recipes import QueueRecipe

MOST_OF_FOLLOWED: Final = 10_000
"""The largest number of instances of a job on a flavor whose capacity follows the machines."""
DEFAULT_PRIORITIES: Final[Mapping[str, int]] = {"low": -100, "normal": 0, "high": 100}


@dataclass(frozen=True, slots=True)
class Pool:
    """The flavors that queues share, and the named classes of priorities."""

    flavors: Sequence[Flavor]
    priorities: Mapping[str, int] = field(default_factory=lambda: DEFAULT_PRIORITIES)
    is_delegated: bool = False
    """Whether the cluster's own queue decides when jobs start. If so, this pool does not limit running
    jobs."""


def delegated_pool(priorities: Mapping[str, int]) -> Pool:
    """Return the pool of a service that leaves capacity and quotas to the cluster's own queue."""
    return Pool((Flavor(name=DEFAULT_FLAVOR, capacity={}),), dict(priorities), is_delegated=True)


def pool_of(
    capacities: Mapping[str, Mapping[str, str]],
    instances: int,
    priorities: Mapping[str, int] = DEFAULT_PRIORITIES,
    followed: Collection[str] = (),
    labels: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> Pool:
    """Return the pool of the flavors with these capacities, and of the `followed` flavors, whose capacity is
    not known yet.

    Without any flavor, the pool has one flavor with `instances` instances. `labels` are the labels of
    machines, by flavor. If one flavor declares a device, flavors that do not declare this device have none: a
    job for GPUs does not run on machines without GPUs.
    """
    none = {name: 0 for each in capacities.values() for name in each if is_device(name)}
    flavors = [Flavor(name=name, capacity={**none, **units_of(each)}) for name, each in capacities.items()]
    flavors += [Flavor(name=name, capacity={}, is_followed=True, is_known=False) for name in followed]
    flavors = flavors or [Flavor(name=DEFAULT_FLAVOR, capacity={INSTANCES: instances})]
    flavors = [replace(each, labels=labels[each.name]) if labels.get(each.name) else each for each in flavors]
    return Pool(tuple(flavors), dict(priorities))


@dataclass(frozen=True)
class Tree:
    """The declared queues, and the queue `default`, which always exists. A tree never changes."""

    pool: Pool
    recipes: Mapping[str, QueueRecipe]
    """The recipes as declared, by name."""
    queues: Mapping[str, Queue]
    """The queues for the planner, by name. Those in `problems` keep only their weights and `max_running`."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """The reasons why queues cannot take jobs, by name."""

    @cached_property
    def verdicts(self) -> dict[Hashable, Diagnosis | None]:
        """A cache, filled by callers, of the reasons why jobs can never start in this tree.

        None: the job can start.
        """
        return {}

    @cached_property
    def most_instances(self) -> int:
        """The largest number of instances that one job may have, given that a job runs on one flavor."""
        return max(
            each.capacity.get(INSTANCES, 0) if each.capacity and not each.is_followed else MOST_OF_FOLLOWED
            for each in self.pool.flavors
        )

    @cached_property
    def cohorts(self) -> frozenset[str]:
        """The queues that are parents of other queues."""
        return frozenset(each.parent for each in self.queues.values() if each.parent)

    @property
    def leaves(self) -> frozenset[str]:
        """The queues in which jobs can wait."""
        return frozenset(self.queues) - self.cohorts

    def covering(self, names: Iterable[str]) -> Mapping[str, Queue]:
        """Return the queues for the planner, with additional queues for undeclared names.

        An additional queue is at the top, with weight 1 and without limits. A job may name an undeclared
        queue if a file with queues was changed while the service was not running, or if the queue was removed
        during the job's submission.
        """
        return covering(self.queues, names)

    def up_from(self, name: str) -> Iterator[str]:
        """Yield the names of the queue and its parents, up to the top."""
        while name:
            yield name
            name = self.queues[name].parent

    def projects_of(self, name: str) -> frozenset[str] | None:
        """Return the projects that may use the queue; None if all may."""
        return next((self._listed[each] for each in self.up_from(name) if each in self._listed), None)

    @cached_property
    def _listed(self) -> Mapping[str, frozenset[str]]:
        """The projects that each queue lists, by queue."""
        return {name: frozenset(each.projects) for name, each in self.recipes.items() if each.projects}

    def allows(self, name: str, project: str) -> bool:
        """Return whether jobs of the project may wait in the queue."""
        projects = self.projects_of(name)
        return name not in self.cohorts and (projects is None or project in projects)

    def of_project(self, project: str) -> list[str]:
        """Return the names of the queues in which jobs of the project may wait, sorted."""
        return sorted(name for name in self.queues if self.allows(name, project))

    def default_of(self, project: str) -> str:
        """Return the queue of the project's jobs that do not name a queue.

        This is the first queue, in the order of names, that lists the project and can take jobs. If there is
        none, this is `default`.
        """
        return self._defaults.get(project, DEFAULT_QUEUE)

    @cached_property
    def _defaults(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for name in sorted(self.recipes.keys() - self.cohorts - self.problems.keys()):
            for project in self.recipes[name].projects:
                found.setdefault(project, name)
        return found

    def max_priority_of(self, name: str) -> int | None:
        """Return the highest priority that a job may have in the queue. None: any priority."""
        found = (self.queues[each].max_priority for each in self.up_from(name))
        return min((each for each in found if each is not None), default=None)


def covering(queues: Mapping[str, Queue], names: Iterable[str]) -> Mapping[str, Queue]:
    """Return the queues, and additional queues for missing names; see Tree.covering."""
    others = {name: Queue(name=name) for name in names if name not in queues}
    return {**queues, **others} if others else queues


def tree_of(
    pool: Pool, recipes: Mapping[str, QueueRecipe], *, also: Mapping[str, QueueRecipe] | None = None
) -> Tree:
    """Return the tree of these queues.

    Raises ValueError if the queues in `recipes` are not valid. The message begins with the queue and the
    field, such as "research.parent: …". The queues in `also` were accepted earlier, so they are never
    refused. Those that no longer fit the settings are in the tree's `problems`.
    """
    problems: dict[str, str] = {}
    kept = dict(recipes)
    check(pool, kept)
    later = {name: recipe for name, recipe in (also or {}).items() if name not in kept}
    # First, all queues of `also` are added together, which usually succeeds. If this fails, they are added
    # one by one, parents first.
    try:
        check(pool, {**kept, **later})
        kept |= later
    except ValueError:
        _add_what_fits(pool, kept, later, problems)
    every = {**recipes, **later}
    queues = {
        name: replace(
            _queue(pool, name, recipe, _preemption(pool, name, kept)), project=_only_project(name, kept)
        )
        for name, recipe in kept.items()
    }
    for name in problems:
        queues[name] = Queue(name=name, weight=every[name].weight, max_running=every[name].max_running)
    if DEFAULT_QUEUE not in queues:
        queues[DEFAULT_QUEUE] = Queue(name=DEFAULT_QUEUE)
    return Tree(pool, every, queues, problems)


def _add_what_fits(
    pool: Pool, kept: dict[str, QueueRecipe], later: Mapping[str, QueueRecipe], problems: dict[str, str]
) -> None:
    waiting, refused = dict(later), dict[str, str]()
    while waiting:
        before = len(waiting)
        for name in list(waiting):
            try:
                check(pool, {**kept, name: waiting[name]})
            except ValueError as error:
                refused[name] = str(error)
            else:
                kept[name] = waiting.pop(name)
        if len(waiting) == before:
            problems.update({name: refused[name] for name in waiting})
            return


def changed(tree: Tree, name: str, recipe: QueueRecipe | None) -> Tree:
    """Return the tree with this recipe for the queue `name`; without the queue if the recipe is None.

    Other queues in `problems` are left out. Raises ValueError if the changed tree is not valid.
    """
    recipes = {key: each for key, each in tree.recipes.items() if key != name and key not in tree.problems}
    return tree_of(tree.pool, {**recipes, name: recipe} if recipe else recipes)


def check(pool: Pool, recipes: Mapping[str, QueueRecipe]) -> None:
    """Raise ValueError if the queues are not a tree or do not fit the pool.

    The message begins with queue and field.
    """
    for name, recipe in recipes.items():
        if pool.is_delegated:
            _check_delegated(name, recipe)
        _check_parents(name, recipe, recipes)
        _check_class(name, recipe, pool)
        _check_resources(name, recipe, pool)
    children: dict[str, list[str]] = {}
    for name, recipe in recipes.items():
        children.setdefault(recipe.parent, []).append(name)
    for name in children:
        if name and recipes[name].max_queued is not None:
            raise ValueError(
                f"{name}.max_queued: not allowed, since no jobs wait in queues that are parents "
                "of others; set it for those queues"
            )
    for flavor in pool.flavors:
        # The capacity of followed machines may change at any time, so it does not bound guarantees.
        capacities = _guaranteed(recipes, flavor.name) if flavor.is_followed else flavor.capacity
        for resource, capacity in capacities.items():
            _check_sums(children, recipes, flavor.name, resource, capacity)


def _guaranteed(recipes: Mapping[str, QueueRecipe], flavor: str) -> dict[str, None]:
    """Return the resources of a flavor that are guaranteed to queues. Each value is None: no bound."""
    quotas = (recipe.quotas.get(flavor) for recipe in recipes.values())
    return {resource: None for quota in quotas if quota for resource in quota.nominal}


def _check_parents(name: str, recipe: QueueRecipe, recipes: Mapping[str, QueueRecipe]) -> None:
    place, parent = f"{name}.parent", recipe.parent
    if not parent:
        return
    if parent == DEFAULT_QUEUE:
        raise ValueError(
            f"{place}: {quoted(parent)} is not allowed: jobs that name no queue wait there, so it cannot be "
            "a parent"
        )
    if parent not in recipes:
        raise ValueError(f"{place}: {quoted(parent)} doesn't exist; allowed: {listed(recipes)}")
    path = [name]
    while parent in recipes:
        path.append(parent)
        if parent == name:
            raise ValueError(
                f"{place}: {quoted(recipe.parent)} is not allowed: the parents form a cycle, "
                f"{' → '.join(path)}"
            )
        if parent in path[:-1]:
            return  # This queue is not in the cycle. The check of a queue in the cycle reports the cycle.
        parent = recipes[parent].parent


_OF_PLANNER: Final = ("weight", "quotas", "max_running", "preemption")
"""The fields of queues that affect when jobs start."""


def _check_delegated(name: str, recipe: QueueRecipe) -> None:
    fields = type(recipe).model_fields
    if found := [each for each in _OF_PLANNER if getattr(recipe, each) != fields[each].default]:
        raise ValueError(
            f"{name}.{found[0]}: not allowed with scheduling.delegate, which leaves this to the cluster's "
            "own queue; remove it, and set it there"
        )


def _check_class(name: str, recipe: QueueRecipe, pool: Pool) -> None:
    classes = {"max_priority": recipe.max_priority, "preemption.protected": recipe.preemption.protected}
    for field_name, wanted in classes.items():
        if wanted is not None and wanted not in pool.priorities:
            raise ValueError(
                f"{name}.{field_name}: {quoted(wanted)} doesn't exist; allowed: {listed(pool.priorities)} "
                "(scheduling.priorities)"
            )


def _check_resources(name: str, recipe: QueueRecipe, pool: Pool) -> None:
    capacities = {each.name: None if each.is_followed else each.capacity for each in pool.flavors}
    for flavor, quota in recipe.quotas.items():
        if flavor not in capacities:
            raise ValueError(
                f"{name}.quotas.{flavor}: there is no such flavor; allowed: {listed(capacities)} "
                "(scheduling.flavors)"
            )
        capacity = capacities[flavor]
        if capacity is None:
            continue
        for resource in quota.nominal:
            if resource not in capacity:
                raise ValueError(
                    f"{name}.quotas.{flavor}.nominal.{resource}: the flavor has no such resource; allowed: "
                    f"{listed(capacity)} (scheduling.flavors.{flavor})"
                )


def _check_sums(
    children: Mapping[str, Sequence[str]],
    recipes: Mapping[str, QueueRecipe],
    flavor: str,
    resource: str,
    capacity: int | None,
) -> None:
    """Raise ValueError if a queue's children are together guaranteed more than the queue itself, or if all
    top queues are together guaranteed more than `capacity`.

    For a queue without its own quota, the sum of its children's quotas counts. A `capacity` of None is no
    bound.
    """
    totals: dict[str, int] = {}
    for name in _children_first(children):
        below = sum(totals[child] for child in children.get(name, ()))
        own = _nominal(recipes[name], flavor, resource) if name else capacity
        if own is not None and below > own:
            what = f"quotas.{flavor}.nominal.{resource}"
            asked = [each for each in children[name] if totals[each]]
            place, of = asked[-1], f"{name}.{what}" if name else f"scheduling.flavors.{flavor}.{resource}"
            raise ValueError(
                f"{place}.{what}: {', '.join(asked)} and the queues below are guaranteed "
                f"{_shown(resource, below)} in all; at most {_shown(resource, own)} is allowed ({of})"
            )
        totals[name] = below if own is None else own


def _children_first(children: Mapping[str, Sequence[str]]) -> list[str]:
    ordered = [""]
    for name in ordered:  # the list grows while it is read
        ordered.extend(children.get(name, ()))
    return ordered[::-1]


def _nominal(recipe: QueueRecipe, flavor: str, resource: str) -> int | None:
    quota = recipe.quotas.get(flavor)
    quantity = quota.nominal.get(resource) if quota else None
    return None if quantity is None else units(resource, quantity)


def _shown(resource: str, number: int) -> str:
    return f"{number}m" if resource == "cpu" else str(number)


def _preemption(pool: Pool, name: str, recipes: Mapping[str, QueueRecipe]) -> PreemptionRules:
    """Return the preemption rules of a queue.

    A rule that the queue does not set is inherited from its parent.
    """
    recipe = recipes[name]
    above = _preemption(pool, recipe.parent, recipes) if recipe.parent in recipes else PreemptionRules()
    own = recipe.preemption
    return PreemptionRules(
        by_priority=above.by_priority if own.by_priority is None else own.by_priority,
        reclaim=above.reclaim if own.reclaim is None else own.reclaim,
        min_runtime=above.min_runtime if own.min_runtime is None else own.min_runtime.total_seconds(),
        max_preemptions=above.max_preemptions if own.max_preemptions is None else own.max_preemptions,
        protected=above.protected if own.protected is None else pool.priorities[own.protected],
        resize_period=above.resize_period if own.resize_period is None else own.resize_period.total_seconds(),
    )


def _only_project(name: str, recipes: Mapping[str, QueueRecipe]) -> str:
    """Return the only project that may use a queue; empty if several or all projects may.

    A queue that names no projects inherits the projects of its parent.
    """
    while recipe := recipes.get(name):
        if recipe.projects:
            return recipe.projects[0] if len(recipe.projects) == 1 else ""
        name = recipe.parent
    return ""


def _queue(pool: Pool, name: str, recipe: QueueRecipe, preemption: PreemptionRules) -> Queue:
    limits = {
        flavor: {
            resource: Limit(
                nominal=units(resource, quantity),
                borrow=_given(quota.borrow, resource),
                lend=_given(quota.lend, resource),
            )
            for resource, quantity in quota.nominal.items()
        }
        for flavor, quota in recipe.quotas.items()
    }
    return Queue(
        name=name,
        parent=recipe.parent,
        weight=recipe.weight,
        limits=limits,
        max_running=recipe.max_running,
        max_queued=recipe.max_queued,
        max_priority=None if recipe.max_priority is None else pool.priorities[recipe.max_priority],
        preemption=preemption,
    )


def _given(amounts: Mapping[str, str], resource: str) -> int | None:
    return units(resource, amounts[resource]) if resource in amounts else None
