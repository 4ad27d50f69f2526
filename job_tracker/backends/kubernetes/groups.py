"""Live groups, assembled from the pods in the cache."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from job_tracker.backends.base import Observation, RankObservation
from job_tracker.backends.kubernetes import diagnosis
from job_tracker.backends.kubernetes.kueue import is_gated
from job_tracker.backends.kubernetes.labels import (
    Manifest,
    group_of,
    instances_of,
    rank_of,
    restarts_of,
    runs_program,
)
from job_tracker.backends.kubernetes.options import CONTAINER
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.backends.kubernetes.status import end_is_cut, observe_rank, program_of, with_message
from job_tracker.backends.shared.live_groups import LiveGroup, LiveGroups
from job_tracker.backends.shared.programs import for_program
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.eviction import Eviction
from job_tracker.domain.group import MASTER_RANK, GroupRef, Phase, RankStatus

Change = tuple[Manifest, bool]
"""A pod in its current state, and whether it is gone."""

STOPPING = "training-service/stopping"
"""Annotation of one pod (usually the master's) of a group that is being stopped.

It is written before any pod of the group is deleted.
"""

# The time that the pods of a group may take to appear. During this time, some pods may be missing: another
# replica is still creating pods, or a service was killed before it had created all of them.
_LAUNCH_TIME = timedelta(seconds=30)
# For this time after the Service is back, DNS resolvers may still answer that its name does not exist.
_RESOLVER_TIME = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Outage:
    """A period in which the group's Service was missing.

    `since` is None if the start is unknown, and `until` is None if the Service is still missing.
    """

    service: str
    since: datetime | None
    until: datetime | None = None

    def explains(self, failed_at: datetime) -> bool:
        """Return whether the outage may explain the failure of a rank at the time `failed_at`.

        The cluster's times are in whole seconds, so `failed_at` may be up to a second too early.
        """
        began = self.since is None or failed_at >= self.since - timedelta(seconds=1)
        return began and (self.until is None or failed_at <= self.until + _RESOLVER_TIME)


@dataclass(slots=True)
class PodGroup(LiveGroup):
    """See LiveGroup. `pods` has the last known state of each rank's pod, even of pods that are gone."""

    pods: dict[int, Manifest] = field(default_factory=dict)
    stopping: bool = False
    outage: Outage | None = None
    """The latest outage of the group's Service."""
    log_ends: dict[str, str] = field(default_factory=dict)
    """The end of the log of each failed pod, by the pod's uid; "" if the log could not be read."""
    wanted: dict[int, Manifest] = field(default_factory=dict)
    """The failed pods, by rank, for which `Groups.read_log` must still be called.

    Their status may have only a part of the end of the log.
    """
    gate_note: str = ""
    """Kueue's message about the group while the group waits."""
    gate_read_at: float = float("-inf")
    """The time at which Kueue was last asked about the group, by the monotonic clock."""
    _seen: dict[int, RankObservation] = field(default_factory=dict)
    _ended: set[int] = field(default_factory=set)
    _notices: dict[int, Eviction] = field(default_factory=dict)
    """The observed evictions by rank. They are stored because later states of pods no longer show them."""
    _changed: set[int] = field(default_factory=set)

    @property
    def living(self) -> dict[int, Manifest]:
        """The pods that exist, by rank, whether they have ended or not."""
        return {rank: pod for rank, pod in self.pods.items() if rank not in self.gone}

    def restarts_of(self, rank: int) -> int:
        """See LiveGroup."""
        return restarts_of(self.pods.get(rank, {}))

    def observe(
        self,
        now: datetime,
        settings: KubernetesSettings,
        *,
        changed_only: bool = False,
        reads_logs: bool = False,
    ) -> Observation:
        """Return the state of every rank; with `changed_only`, only changed pods are evaluated again.

        The status of a failed pod may have only a part of the end of its log. With `reads_logs`, the rank of
        such a pod counts as running until that end is read (`has_read`). Other ranks that fail in the
        meantime count as running, too, because the failure whose log is still being read may be the cause.

        The result of a rank that has ended is final until the rank is restarted, even if its pod changes or
        is deleted. Only the exit code of a stopped rank may still follow.
        """
        for rank in self._changed if changed_only and self._seen else range(self.instances):
            if rank not in self._ended:
                self._seen[rank] = self._awaiting_log(rank, reads_logs) or self._observe_rank(
                    rank, now, settings
                )
        self._changed.clear()
        waits = any(self._awaiting_log(rank, reads_logs) for rank in range(self.instances))
        ranks = tuple(self._shown(rank) if waits else self._seen[rank] for rank in range(self.instances))
        return Observation(ranks, program_of(self.pods.get(MASTER_RANK)))

    def has_read(self, rank: int, pod: Manifest, log_end: str) -> None:
        """Record the end of the log of the rank's failed pod; "" if it could not be read."""
        self.log_ends[pod["metadata"]["uid"]] = log_end
        self._changed.add(rank)

    def has_gate_note(self, note: str) -> None:
        """Store Kueue's message about the group."""
        self.gate_note = note
        self._changed.add(MASTER_RANK)

    @property
    def is_gated(self) -> bool:
        """Whether the group waits for Kueue."""
        return not self.stopping and any(is_gated(pod) for pod in self.living.values())

    def _shown(self, rank: int) -> RankObservation:
        """Return the observation of a rank while the log of any failed rank of the group is being read.

        If this rank has failed, but was not yet reported as failed, it is still reported as running.
        """
        seen = self._seen[rank]
        was = self.last.ranks[rank].status.phase if self.last else None
        if seen.status.phase is not Phase.FAILED or was is Phase.FAILED:
            return seen
        return RankObservation(RankStatus(rank, Phase.RUNNING, restarts=seen.status.restarts))

    def _awaiting_log(self, rank: int, reads_logs: bool) -> RankObservation | None:
        pod = self.pods.get(rank)
        if not reads_logs or pod is None or self.stopping or rank in self.gone or not end_is_cut(pod):
            return None
        if rank in self._notices:
            return None  # the end of an evicted rank is not a failure
        if pod["metadata"]["uid"] in self.log_ends:
            return None
        self.wanted[rank] = pod
        return RankObservation(RankStatus(rank, Phase.RUNNING, restarts=restarts_of(pod)))

    def _observe_rank(self, rank: int, now: datetime, settings: KubernetesSettings) -> RankObservation:
        launching = rank not in self.pods and (self.launching or self._is_young(now))
        seen = observe_rank(
            rank,
            self._with_log(rank),
            now,
            gone=rank in self.gone and not self.stopping,
            launching=launching,
            stopping=self.stopping,
            start_grace=settings.image_pull_grace,
            node_grace=settings.lost_node_grace,
            place_grace=settings.taken_place_grace,
            notice=self._notices.get(rank),
            orphaned=MASTER_RANK not in self.pods,
            gate_note=self.gate_note if rank == MASTER_RANK else "",
        )
        if seen.eviction is not None:
            self._notices[rank] = seen.eviction
        if rank in self.gone and not seen.status.phase.has_ended:
            # The pod was removed before its node reported the pod's end, so the exit code is unknown.
            seen = RankObservation(RankStatus(rank, Phase.STOPPED), eviction=seen.eviction)
        seen = self._blame_outage(seen, now)
        if known := self.pods.get(rank):
            if seen.diagnosis and runs_program(known):
                seen = replace(seen, diagnosis=for_program(seen.diagnosis, "kubernetes"))
            seen = replace(seen, status=replace(seen.status, restarts=restarts_of(known)))
        if seen.status.phase.has_ended and not self._may_get_exit_code(rank, seen):
            self._ended.add(rank)
        return seen

    def _with_log(self, rank: int) -> Manifest | None:
        """Return the rank's pod. The end of its log, once read, replaces the kubelet's message."""
        pod = self.pods.get(rank)
        log_end = self.log_ends.get(pod["metadata"]["uid"]) if pod else None
        return with_message(pod, log_end) if pod and log_end else pod

    @property
    def needs_service(self) -> bool:
        """Whether the group must have a Service: it has several instances, its master exists and is not being
        deleted, and the group is neither being launched nor being stopped.
        """
        master = self.living.get(MASTER_RANK)
        is_here = master is not None and "deletionTimestamp" not in master["metadata"]
        return self.instances > 1 and is_here and not self.launching and not self.stopping

    def _blame_outage(self, seen: RankObservation, now: datetime) -> RankObservation:
        """Return the observation. If a missing Service may have caused the crash, the diagnosis says so."""
        crash = seen.diagnosis
        if crash is None or crash.category is not Category.CRASHED or self.outage is None:
            return seen
        failed_at = now if seen.ended_at is None else datetime.fromtimestamp(seen.ended_at, UTC)
        if not self.needs_service or not self.outage.explains(failed_at):
            return seen
        return replace(seen, diagnosis=diagnosis.without_service(crash, self.outage.service))

    def _may_get_exit_code(self, rank: int, seen: RankObservation) -> bool:
        """Return whether a stopped rank may still report its exit code."""
        return seen.status.phase is Phase.STOPPED and seen.status.exit_code is None and rank not in self.gone

    def _is_young(self, now: datetime) -> bool:
        # The time of one pod is enough, because all pods are created at about the same time.
        made = next((pod["metadata"].get("creationTimestamp") for pod in self.pods.values()), None)
        return made is not None and now - datetime.fromisoformat(made) < _LAUNCH_TIME

    def take(self, rank: int, pod: Manifest, gone: bool) -> None:
        """Update the group with the current state of a pod."""
        known = self.pods.get(rank)
        if known is not None and restarts_of(known) > restarts_of(pod):
            return  # a late event of an earlier pod
        if known is None or known["metadata"]["uid"] != pod["metadata"]["uid"]:
            if gone:
                return  # the pod was replaced already, or was never seen
            self._ended.discard(rank)
            self._notices.pop(rank, None)
        self.pods[rank] = pod
        self._changed.add(rank)
        (self.gone.add if gone else self.gone.discard)(rank)
        if not self.stopping and STOPPING in (pod["metadata"].get("annotations") or {}):
            self.stopping = True
            self._changed.update(range(self.instances))

    @property
    def may_change_by_itself(self) -> bool:
        """Whether the observation may change without an event.

        This is so if a pod of the group cannot start yet or has not appeared yet, or if its node is silent.
        """
        return self.last is not None and any(
            rank.status.note or (rank.status.phase is Phase.PENDING and rank.status.rank not in self.pods)
            for rank in self.last.ranks
        )


class Groups(LiveGroups[PodGroup]):
    """See LiveGroups."""

    def __init__(
        self,
        settings: KubernetesSettings | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__(PodGroup)
        self.on_found: Callable[[PodGroup], None] = lambda _: None
        """Called with each new group, after its first pod was seen and before the group is observed."""
        self.read_log: Callable[[PodGroup, int, Manifest], None] | None = None
        """Called with each failed pod whose log must be read.

        The called function has to call `log_was_read` later.
        """
        self.read_gate: Callable[[PodGroup], None] | None = None
        """Called with groups that wait for Kueue, each time that they are observed.

        The called function may call `gate_was_read` later.
        """
        self._settings = settings or KubernetesSettings()
        self._clock = clock

    def take(self, changes: Iterable[Change]) -> None:
        """Update groups with the current state of pods. Called by the cache.

        All pods are updated before any group is observed, because the master's annotation explains why a
        worker was deleted.
        """
        touched: dict[GroupRef, PodGroup] = {}
        found: list[PodGroup] = []
        for pod, gone in changes:
            ref, rank, instances = group_of(pod), rank_of(pod), instances_of(pod)
            if ref is None or rank is None or instances is None or rank >= instances:
                continue  # a foreign pod with our label
            if gone and self.get(ref) is None:
                continue
            group = touched[ref] = self._known_or_new(ref, instances)
            is_found = not group.pods
            group.take(rank, pod, gone)
            if is_found:
                found.append(group)
        for group in found:
            self.on_found(group)
        for ref, group in touched.items():
            self.observe(group, changed_only=True)
            self.touched.publish(ref, None)
            if group.stopping and not group.living and not group.held:
                self.drop(ref)  # another replica, or an earlier run of this one, has stopped the group

    def observe(self, group: PodGroup, *, changed_only: bool = False) -> Observation:
        """Observe the group, and notify the watchers if the result is new."""
        seen = group.observe(
            self._clock(), self._settings, changed_only=changed_only, reads_logs=self.read_log is not None
        )
        self._publish(group, seen)
        while self.read_log is not None and group.wanted:
            self.read_log(group, *group.wanted.popitem())
        if self.read_gate is not None and group.is_gated:
            self.read_gate(group)
        may_change = group.may_change_by_itself and self.get(group.ref) is group
        graces = self._settings.image_pull_grace, self._settings.taken_place_grace, _LAUNCH_TIME
        later = max(0.2, min(graces).total_seconds() / 10)
        self._look_again(group, self.observe, later if may_change else None)
        return seen

    def log_was_read(self, group: PodGroup, rank: int, pod: Manifest, log_end: str) -> None:
        """Record the end of the log of a failed pod, and observe its group again."""
        group.has_read(rank, pod, log_end)
        self.observe(group, changed_only=True)
        self.touched.publish(group.ref, None)

    def gate_was_read(self, group: PodGroup, note: str) -> None:
        """Record Kueue's message about a group that waits for it, and observe the group again."""
        if self.get(group.ref) is group and note != group.gate_note:
            group.has_gate_note(note)
            self.observe(group, changed_only=True)

    def observe_all(self) -> Mapping[GroupRef, Observation]:
        """Observe all groups that have or had a pod.

        Only changed pods are evaluated again. Groups that may change without an event have timers.
        """
        return {group.ref: self.observe(group, changed_only=True) for group in self if group.pods}


def has_started(pod: Manifest) -> bool:
    """Return whether the pod's training container is running or has run."""
    return any("running" in state or "terminated" in state for state in _training_states(pod))


def is_running(pod: Manifest) -> bool:
    """Return whether the pod's training container is running, according to its node's last report."""
    return any("running" in state for state in _training_states(pod))


def _training_states(pod: Manifest) -> list[Manifest]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return [each["state"] for each in statuses if each["name"] == CONTAINER]


def has_ended(pod: Manifest) -> bool:
    """Return whether the pod has ended by itself and its node reports no running process.

    The phase does not suffice, because old kubelets set Failed before they end the pod's processes.
    """
    status = pod.get("status") or {}
    kinds = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    states = [each["state"] for kind in kinds for each in status.get(kind) or ()]
    is_over = status.get("phase") in ("Succeeded", "Failed") and bool(states)
    return is_over and "deletionTimestamp" not in pod["metadata"] and not any("running" in s for s in states)


def has_stopped(pod: Manifest) -> bool:
    """Return whether the pod is being deleted and, according to its node, has no process left."""
    status = pod.get("status") or {}
    each_state = [each["state"] for each in status.get("containerStatuses") or ()]
    # If the containers were removed before their end was reported, only the phase shows that they have ended.
    is_over = status.get("phase") in ("Succeeded", "Failed")
    is_over = is_over or (bool(each_state) and all("terminated" in state for state in each_state))
    return is_over and "deletionTimestamp" in pod["metadata"]
