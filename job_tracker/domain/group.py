"""A group: the instances of one attempt of a job, what they are to be, and what their ranks do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from job_tracker.domain import naming
from job_tracker.domain.policies import Elastic

MASTER_RANK = 0


class Phase(StrEnum):
    """What one rank of a group is doing. STOPPED: ended by us, because the job was over."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self not in (Phase.PENDING, Phase.RUNNING)


@dataclass(frozen=True, slots=True)
class RankStatus:
    """One rank of a group. `exit_code` is None while it runs and 128 + N after signal N.

    `note` says what a rank that has not ended is waiting for, if that is known. `restarts` is how often
    it was started anew in this attempt, as an elastic job allows.
    """

    rank: int
    phase: Phase
    exit_code: int | None = None
    note: str = ""
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class GroupRef:
    """The outside name of one attempt's group: what a backend finds it again by."""

    name: str
    job_id: int
    attempt: int
    home: str = field(default="", compare=False)
    """That of its job, where it is known: what an engine says of a group has none."""

    @property
    def job_folder(self) -> str:
        """The relative path of its job's folders."""
        return naming.job_folder(self.home, self.job_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A taint of nodes that instances put up with, as Kubernetes has it."""

    key: str | None = None
    """None, with operator Exists: every taint."""
    operator: str = "Equal"
    value: str = ""
    effect: str | None = None
    """None: every effect."""
    toleration_seconds: int | None = None
    """How long a NoExecute taint is put up with; None: for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceOptions:
    """What a request may say of its instances. The field names are those of PodOptions on the wire."""

    resources: Mapping[str, str] = field(default_factory=dict)
    """How much each instance gets, by resource, as quantities such as "500m" and "4Gi"."""
    nproc_per_node: int | None = None
    """Training processes in each instance; None: as configured."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    priority_class: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSpec(InstanceOptions):
    """Each instance of a role, with configuration and request resolved into one."""

    image: str = ""
    """Empty on engines that have none."""
    command: tuple[str, ...] = ()
    """The program and its arguments, before the framework's launcher; empty: what the image starts."""
    engine: str = ""
    """What only the backend knows of it: its own options as JSON, opaque to all others."""

    @property
    def processes(self) -> int:
        """Training processes in each instance."""
        return self.nproc_per_node or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """What the group of each attempt is to be: all that a backend translates, and nothing of this machine.

    Admission resolves configuration, algorithm and request into it once, and it is stored with the job. So a
    queued job runs as it was accepted. What the operator enforces (a namespace, an identity) is no part of
    it: backends apply that at launch.

    Stored jobs leave out what has its default: a default here never changes its meaning.
    """

    roles: Mapping[str, int]
    """How many instances there are of each role, in the order of ranks."""
    backend: str = ""
    """The backend that it is resolved for; empty: not resolved, as of jobs that earlier versions accepted."""
    framework: str = "pytorch"
    trainers: InstanceSpec = InstanceSpec()  # it never changes
    """The master and its workers. If the spec is not resolved: what the request says of them."""
    others: Mapping[str, InstanceSpec] = field(default_factory=dict)
    """The other roles, by name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that configuration sets for every process of the algorithm."""
    elastic: Elastic | None = None
    """Whether the group goes on when it loses workers; None: the failure of any rank ends the attempt."""
    ends_with_master: bool = False
    """Whether only the master ends by itself: parameter servers do not."""

    @property
    def size(self) -> int:
        """How many instances there are in all."""
        return sum(self.roles.values())

    @property
    def role_of_ranks(self) -> tuple[str, ...]:
        """The role of each rank."""
        return tuple(role for role, count in self.roles.items() for _ in range(count))

    def instance(self, role: str) -> InstanceSpec:
        """What each instance of the role is."""
        return self.others.get(role, self.trainers)

    @property
    def training_processes(self) -> int:
        """How many processes train, in all instances."""
        return self.trainers.processes * sum(
            count for role, count in self.roles.items() if role not in self.others
        )
