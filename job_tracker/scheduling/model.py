"""The input and the decisions of the planner. This module has only values: it reads no clock and no files.

Times are Unix seconds, durations are seconds. Amounts of resources are whole numbers, by the name of the
resource: `cpu` is in thousandths, `memory` and `ephemeral-storage` are in bytes, and others in units. Each
instance takes 1 of the resource `instances`.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeAlias

from job_tracker.domain.allocation import DEFAULT_FLAVOR as DEFAULT_FLAVOR
from job_tracker.domain.allocation import Allocation as Allocation
from job_tracker.domain.diagnosis import Diagnosis
from job_tracker.domain.group import Place
from job_tracker.domain.history import PreemptionReason as PreemptionReason
from job_tracker.domain.machine import INSTANCES as INSTANCES
from job_tracker.domain.naming import DEFAULT_QUEUE

Resources: TypeAlias = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine, and the resources on it that all jobs of this service together may use."""

    name: str
    capacity: Resources
    is_open: bool = True
    """False: jobs on the machine continue to run, but no further jobs start on it."""
    labels: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[Place, str] = field(default_factory=dict)
    """The location of the machine: the name of its place, by kind of place. Unknown places are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    """A kind of machine.

    A resource that the capacity does not name is not limited. But if the capacity follows the machines, the
    machines have no such resource.
    """

    name: str
    capacity: Resources
    nodes: tuple[Node, ...] = ()
    """The machines; empty if they are not known.

    If they are known, each instance has to fit on one of them.
    """
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that all machines of the flavor have."""
    is_followed: bool = False
    """Whether the capacity follows the machines, as the engine reports them.

    Such a capacity may change at any time, even to nothing.
    """
    is_known: bool = True
    """False: the flavor's machines have not been read yet.

    Until then, no job starts on the flavor, and no job that may run on it is refused because of its size.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A queue's quota of one resource of one flavor."""

    nominal: int
    """The amount that is guaranteed to the queue."""
    borrow: int | None = None
    """The amount beyond its quota that the queue may borrow, as long as other queues do not use it. None: any
    amount."""
    lend: int | None = None
    """The amount of the queue's unused quota that other queues may use. None: all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionRules:
    """The conditions under which jobs of a queue stop other jobs, are stopped for them, or are resized."""

    by_priority: bool = False
    """Whether the queue's waiting jobs stop its running jobs of lower priorities."""
    reclaim: bool = True
    """Whether a waiting job that fits in the queue's quota stops jobs of queues that exceed their quotas."""
    min_runtime: float = 0.0
    """The seconds for which the queue's attempts run before they may be stopped for other jobs."""
    max_preemptions: int = 10
    """The number of times that a job of the queue may be stopped for other jobs."""
    protected: int | None = None
    """The queue's jobs with this priority or a higher one are never stopped for other jobs.

    None: no job is protected by its priority.
    """
    resize_period: float = 600.0
    """The seconds that an attempt of an elastic job runs before the job may change its size. 0: never.

    A preemption, which may also make the job smaller, does not wait for this time to pass.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A node of the tree of queues. Jobs wait in the leaves; a node with children is a cohort."""

    name: str
    parent: str = ""
    """The name of the queue above this one. Empty: this queue is directly below the root."""
    weight: float = 1.0
    limits: Mapping[str, Mapping[str, Limit]] = field(default_factory=dict)
    """The limits by flavor and resource.

    The use of a resource without an entry is limited only by the parents and the capacity.
    """
    max_running: int | None = None
    """The largest number of jobs of the queue, and of the queues below it, that run at once. None: no
    limit."""
    max_queued: int | None = None
    max_priority: int | None = None
    """The highest priority that jobs of the queue, and of the queues below it, may have. None: no limit."""
    preemption: PreemptionRules = PreemptionRules()  # it is immutable, so all queues may share it
    project: str = ""
    """The only project that may use the queue. Empty: several or all projects may use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The conditions for the machines on which instances may run. Values of this class can be hashed.

    `near` and `apart` apply only if the machines are known.
    """

    selector: tuple[tuple[str, str], ...] = ()
    """Labels that a machine must have."""
    near: Place | None = None
    """All instances of the gang are to run in the same place of this kind. None: anywhere."""
    apart: Place | None = None
    """Each instance is to run in a different place of this kind. None: they may share places."""
    strict: bool = False
    """Whether `near` and `apart` are conditions. Otherwise, they are preferences."""


ANYWHERE = Where()


@dataclass(frozen=True, slots=True)
class Part:
    """Instances of a gang that need the same resources."""

    count: int
    each: Resources
    where: Where = ANYWHERE
    """The machines on which these instances may run.

    In a gang, `near`, `apart` and `strict` of the first part apply to all parts.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected run time of an attempt."""

    median: float
    high: float
    """The high estimate: nine in ten such attempts end earlier."""
    is_learned: bool = field(default=False, compare=False)
    """Whether the estimate rests on run times of earlier attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """The instances of a job, which start together or not at all."""

    job_id: int
    """The job's id.

    The id also decides the order of jobs of the same queue and priority, since ids are in the order of
    submissions.
    """
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    """The priority: in a queue, the job with the highest priority goes first."""
    parts: tuple[Part, ...]
    """The parts: the trainers first, then the instances of other roles."""
    least: int = 0
    """The smallest number of trainers with which the gang starts. 0: it starts only with all trainers."""
    flavors: tuple[str, ...] = ()
    """The flavors on which the gang may run, the preferred flavor first. Empty: all."""
    expected: Expected | None = None
    """The expected run time. None: unknown."""


@dataclass(frozen=True, slots=True)
class Running:
    """A gang that holds its allocation."""

    gang: Gang
    allocation: Allocation
    started_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stake:
    """The facts about stopping a running job: how much a stop would cost, and the present stop, if any."""

    attempt: int
    saved_at: float
    """The time of the attempt's last reported checkpoint.

    Before the first checkpoint, this is the time of the attempt's admission.
    """
    startup: float = 0.0
    """The seconds that an attempt of the job usually takes from its admission until it trains."""
    preemptions: int = 0
    """The number of times that the job was preempted."""
    is_leaving: bool = False
    """Whether the job's group is being stopped, so that its resources soon become free."""
    leaves_for: int | None = None
    """The id of the waiting job for which this job is being stopped.

    0: this job is being stopped to continue with more instances. None: it is not being stopped, or it is
    stopped for another reason.
    """
    goes_on: int = 0
    """The number of trainers with which the job continues at once after its stop.

    0: the job is not being stopped, or waits for its turn after its stop.
    """
    noticed_at: float = 0.0
    """The time of the decision to stop the job; 0: there is no such decision."""


@dataclass(frozen=True, slots=True)
class GoingOn:
    """The size in which a job that was stopped continues at once."""

    trainers: int
    flavor: str = ""
    """The flavor on which the job continues. Empty: any flavor."""


@dataclass(frozen=True, slots=True)
class Promise:
    """The start that was promised to a waiting job.

    It is put off only in a few cases, for example if a running job takes longer than expected.
    """

    at: float
    """The promised start. Infinite: no start can be promised."""
    flavor: str
    overtaken: int = 0
    """The number of jobs that have overtaken this job.

    Another job overtakes this job if the other job starts, or is promised a start, while no start can be
    promised to this job. After the promised start of this job has been put off, other jobs of the same queue
    that start before this job count, too.
    """
    is_put_off: bool = False
    """Whether the promised start was ever moved later."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The decayed past usage of a queue at one time, by flavor and resource: amounts times seconds."""

    at: float
    amounts: Mapping[str, Mapping[str, float]]


class Waiting(Protocol):
    """The waiting gangs. The cost of reading the first gangs of a queue does not grow with its length."""

    def queues(self) -> Iterable[str]:
        """Return the names of the queues with waiting gangs."""
        ...

    def in_order(self, queue: str) -> Iterable[Gang]:
        """Return the gangs of a queue: the highest priority first, then the order of submissions."""
        ...

    def get(self, job_id: int) -> Gang | None:
        """Return the waiting gang of this job; None if there is none."""
        ...

    def __len__(self) -> int:
        """Return the number of waiting gangs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The input of the planner. The same snapshot and time always give the same plan.

    `flavors` and `queues` are never changed in place: a change makes a new object.
    """

    flavors: Sequence[Flavor]
    queues: Mapping[str, Queue]
    waiting: Waiting
    running: Mapping[int, Running]
    usage: Mapping[str, Usage] = field(default_factory=dict)
    """The past usage of each queue, up to the time `Usage.at`.

    Since that time, the queue has used the resources that its running gangs hold.
    """
    promises: Mapping[int, Promise] = field(default_factory=dict)
    """The promises by job."""
    stakes: Mapping[int, Stake] = field(default_factory=dict)
    """The stakes by running job. A job without a stake is never preempted."""
    claims: Sequence[int] = ()
    """The waiting jobs that start before all others.

    First come jobs for which others were stopped, then jobs that continue in another size.
    """
    going_on: Mapping[int, GoingOn] = field(default_factory=dict)
    """The new sizes of the jobs in `claims` that continue in another size, by job."""
    preempted: AbstractSet[int] = frozenset()
    """The waiting jobs that were preempted, or that continue in another size. No other jobs are stopped for
    them."""
    gated: AbstractSet[int] = frozenset()
    """Jobs in LAUNCHING that were not launched yet, or whose groups wait in the cluster's own queue."""
    is_open: bool = True
    """Whether jobs may start now. False: the machine of the service has no room for launches. Reservations
    are made even then."""


class Reason(StrEnum):
    """The reason why a job waits. The codes are stable: they are in the API, in metrics and in events."""

    CAPACITY = "capacity"
    """Other jobs use the resources that the job needs."""
    FRAGMENTED = "fragmented"
    """Enough is free in total, but not on single machines."""
    QUOTA = "quota"
    """The job's queue, or a parent of the queue, has used up its quota and cannot borrow more now."""
    LENT = "lent"
    """Other queues have borrowed the quota of the job's queue."""
    KEPT = "kept"
    """The free capacity is guaranteed to other queues, which do not lend it."""
    MAX_RUNNING = "max_running"
    """The job's queue, or a parent of the queue, runs as many jobs as it may."""
    ORDER = "order"
    """Jobs ahead of this job in its queue wait, too."""
    SHARE = "share"
    """Queues that have used less in proportion to their weight go first."""
    RESERVED = "reserved"
    """The job would delay another job with an earlier reservation, or would overtake another that has been
    overtaken as often as is allowed."""
    UNKNOWN_LENGTH = "unknown_length"
    """The job's duration is unknown, and the job would overtake another that has been overtaken as often as
    is allowed."""
    UNKNOWN_CAPACITY = "unknown_capacity"
    """The machines on which the job may run have not been read yet."""
    LOST_CAPACITY = "lost_capacity"
    """The capacity has become smaller since the job was accepted, and is no longer enough for the job."""
    ROOM = "room"
    """The machine of the service has no room for the next launch."""
    PREEMPTING = "preempting"
    """Other jobs are being stopped for this job."""
    DELEGATED = "delegated"
    """The cluster's own queue decides when the job starts."""
    PENDING = "pending"
    """The next pass decides about the job, for example because it was submitted a moment ago."""


@dataclass(frozen=True, slots=True)
class Admit:
    """The job starts now."""

    job_id: int
    allocation: Allocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt:
    """A running job is stopped for a waiting job, or to continue in another size."""

    job_id: int
    """The id of the running job."""
    attempt: int
    """The attempt to stop. An old decision never stops a later attempt."""
    by_job: int
    """The id of the waiting job.

    0: there is none, since the stopped job is to continue with more instances.
    """
    why: PreemptionReason
    trainers: int = 0
    """The number of trainers with which the stopped job continues at once. 0: it waits for its turn."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The job can never start."""

    job_id: int
    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True)
class Reserve:
    """The job waits, and has a reservation."""

    job_id: int
    promise: Promise
    reasons: tuple[Reason, ...]
    """The reasons, the decisive one first. When it is gone, the others may still hold the job back."""
    moved_because: str = ""
    """A sentence that says why the promised start is later than before. Empty: it is not later."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions of one pass. Waiting jobs that the plan does not name have no reservation."""

    admitted: tuple[Admit, ...] = ()
    refused: tuple[Refuse, ...] = ()
    reserved: tuple[Reserve, ...] = ()
    """The reservations, in the order in which the jobs are to start."""
    preempted: tuple[Preempt, ...] = ()
    """The jobs that are stopped for others, or to continue in another size."""
    next_at: float | None = None
    """The time at which another job may be able to start even if nothing changes until then. None: there is
    no such time."""
    is_delegated: bool = False
    """Whether the cluster's own queue decides when the admitted jobs start."""
