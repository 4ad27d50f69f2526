"""A group: the instances of one attempt of a job, their spec, and the status of their ranks."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from job_tracker.domain import naming
from job_tracker.domain.policies import Elastic

MASTER_RANK = 0


class Phase(StrEnum):
    """The state of one rank of a group.

    STOPPED: the service stopped the rank when the attempt was over or interrupted.
    """

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def has_ended(self) -> bool:
        """Return whether the rank has ended."""
        return self not in (Phase.PENDING, Phase.RUNNING)


@dataclass(frozen=True, slots=True)
class RankStatus:
    """One rank of a group.

    `exit_code` is 128 + N after signal N, and None while the rank runs or if its code is unknown.

    `note` is a sentence about the phase, such as the reason why a rank waits or was lost. `restarts` counts
    the rank's restarts in this attempt; only ranks of elastic jobs are restarted. `is_gated` says that the
    cluster's own queue has not let the rank start yet.
    """

    rank: int
    phase: Phase
    exit_code: int | None = None
    note: str = ""
    restarts: int = 0
    is_gated: bool = False


@dataclass(frozen=True, slots=True)
class GroupRef:
    """The reference with which a backend finds the group of an attempt."""

    name: str
    job_id: int
    attempt: int
    home: str = field(default="", compare=False)
    """The home of the group's job; see naming.home.

    Empty if unknown: engines do not report it. If only the store is known, and not the project, the home is
    the result of naming.home_in_store.
    """

    @property
    def job_folder(self) -> str:
        """Return the job's path, relative to the root folders of models, checkpoints and logs alike."""
        return naming.job_folder(self.home, self.job_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A node taint that instances tolerate, as in Kubernetes."""

    key: str | None = None
    """None, which needs the operator Exists, matches every taint."""
    operator: str = "Equal"
    value: str = ""
    effect: str | None = None
    """None matches every effect."""
    toleration_seconds: int | None = None
    """The time for which a NoExecute taint is tolerated; None: for ever."""


class Place(StrEnum):
    """A kind of place in which instances run. The kinds are listed from small to large."""

    MACHINE = "machine"
    RACK = "rack"
    ZONE = "zone"

    @property
    def larger(self) -> tuple["Place", ...]:
        """Return the larger kinds, from small to large."""
        kinds = tuple(Place)
        return kinds[kinds.index(self) + 1 :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The placement of an attempt's instances relative to each other."""

    near: Place | None = None
    """All instances run in the same place of this kind. None: any places are allowed."""
    apart: Place | None = None
    """Each place of this kind has at most one of the instances. The kind is smaller than `near`.

    None: instances may share places.
    """
    strict: bool = False
    """Whether instances wait until they can be placed in this way.

    If false, the placement is only a preference.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceOptions:
    """The options that a request may set for its instances.

    Fields have the same names as in PodOptions, a message of the API.
    """

    resources: Mapping[str, str] = field(default_factory=dict)
    """The resources of each instance, by name, as quantities such as "500m" and "4Gi"."""
    nproc_per_node: int | None = None
    """Training processes in each instance; None: as configured."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    priority_class: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    placement: Placement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSpec(InstanceOptions):
    """The spec of each instance of a role, resolved from configuration and request."""

    image: str = ""
    """Empty on engines without images."""
    command: tuple[str, ...] = ()
    """The program and its arguments, without the framework's launcher; empty: the image's own command."""
    engine: str = ""
    """The backend's own options as JSON. Only this backend interprets them."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """Resources that each instance requests in addition, for example for sidecars.

    Only the scheduler uses them.
    """

    @property
    def processes(self) -> int:
        """Return the number of training processes in each instance."""
        return self.nproc_per_node or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """The spec of each attempt's group, which a backend translates for its engine.

    It has no values that depend on the machine of the service.

    Admission resolves the spec once, from configuration, algorithm and request, and stores it with the job.
    So a queued job runs as it was accepted. Values that the operator enforces (a namespace, an identity) are
    not part of the spec: backends apply them at launch.

    Stored jobs leave out fields that have their default, so the defaults of this class must never change.
    """

    roles: Mapping[str, int]
    """The number of instances of each role, in the order of ranks."""
    backend: str = ""
    """The backend for which the spec is resolved; empty for unresolved specs, which earlier versions
    accepted."""
    framework: str = "pytorch"
    trainers: InstanceSpec = InstanceSpec()  # it is immutable
    """The master and its workers. In an unresolved spec: their options in the request."""
    others: Mapping[str, InstanceSpec] = field(default_factory=dict)
    """The other roles, by name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the configuration sets for every process of the algorithm."""
    elastic: Elastic | None = None
    """The rules for the restarts of lost workers. None: lost workers are not restarted; see `max_lost`."""
    ends_with_master: bool = False
    """Whether instances other than trainers, such as parameter servers, run until the master ends."""
    max_lost: int = 0
    """The number of ranks other than 0 that may fail while the attempt continues without them.

    0: the failure of any rank ends the attempt, unless the group is elastic.
    """

    @property
    def size(self) -> int:
        """Return the number of all instances."""
        return sum(self.roles.values())

    @property
    def trainers_count(self) -> int:
        """Return the number of trainers: the master and its workers."""
        return sum(count for role, count in self.roles.items() if role not in self.others)

    def with_trainers(self, count: int) -> "GroupSpec":
        """Return the spec with this number of trainers: workers are removed or added.

        Other roles keep their numbers. The master always stays.
        """
        workers = count - self.trainers_count + self.roles.get(naming.WORKER, 0)
        if workers == self.roles.get(naming.WORKER, 0):
            return self
        return replace(self, roles={**self.roles, naming.WORKER: max(0, workers)})

    @property
    def role_of_ranks(self) -> tuple[str, ...]:
        """Return the role of each rank."""
        return tuple(role for role, count in self.roles.items() for _ in range(count))

    def instance(self, role: str) -> InstanceSpec:
        """Return the spec of each instance of the role."""
        return self.others.get(role, self.trainers)

    @property
    def training_processes(self) -> int:
        """Return the number of training processes in all instances."""
        return self.trainers.processes * self.trainers_count
