"""Makes the containers of a plan and starts them, or adopts what of them is there.

The name of the master is the claim: whoever creates that container carries the launch out. Another
service (or this one, after a restart) that finds it waits for a moment, and goes on where the first
stopped if nothing happens. That matters for starting: to start a container that has ended already would
run it twice. All are created before any is started, so that a launch that fails has run nothing, and what
is missing of a group that has started was removed, and is not made again; and the network comes after the
containers, so that one without containers is nobody's.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial

from job_tracker.backends.docker.cache import ContainerCache
from job_tracker.backends.docker.client import DockerClient
from job_tracker.backends.docker.containers import Container
from job_tracker.backends.docker.engine_errors import Conflict, EngineError, NotFound
from job_tracker.backends.docker.groups import ContainerGroup, Groups
from job_tracker.backends.docker.images import Images
from job_tracker.backends.docker.names import are_ours
from job_tracker.backends.docker.plan import ContainerPlan, DockerPlan
from job_tracker.backends.docker.refusals import diagnose_refusal, image_missing, name_taken
from job_tracker.backends.docker.secrets import with_secrets
from job_tracker.backends.docker.status import removed
from job_tracker.backends.shared.claims import Claim, claim_of
from job_tracker.backends.shared.gathering import gathered
from job_tracker.backends.shared.instances import planned_otherwise
from job_tracker.backends.shared.labels import INSTANCE, PLAN_DIGEST
from job_tracker.backends.shared.retries import NotYet, repeated
from job_tracker.domain.errors import BackendUnavailable, LaunchFailed
from job_tracker.domain.group import MASTER_RANK

log = logging.getLogger(__name__)

_GOING_SECONDS = 10.0
_LOOK_SECONDS = 0.1
_TAKE_OVER_SECONDS = 2.0


class Launcher:
    """Launches groups. `remove_lost` removes a container that is to be started anew."""

    def __init__(
        self,
        client: DockerClient,
        cache: ContainerCache,
        groups: Groups,
        images: Images,
        remove_lost: Callable[[Container], Awaitable[None]],
    ) -> None:
        self._remove_lost = remove_lost
        self._client = client
        self._cache = cache
        self._groups = groups
        self._images = images

    async def launch(self, plan: DockerPlan, group: ContainerGroup) -> None:
        """Have every container of the plan run, or have run. May be repeated after it was cut short.

        Raises LaunchFailed when the engine refuses something, and BackendUnavailable when trying again
        may help; what was made until then is there in both cases.
        """
        if _is_whole(group, plan):
            return
        lost = _lost(group, plan)
        await self._images.ensure(plan.image, plan.pull)
        master, is_new = await self._claim(plan, MASTER_RANK)
        if not is_new:
            await self._groups.wait(group, partial(_has_started, MASTER_RANK), _TAKE_OVER_SECONDS)
        ranks = [rank for rank in range(1, plan.instances) if rank not in lost]
        others = [self._claim(plan, rank) for rank in ranks]
        # All of them are waited for even if one fails, so that nothing is made after this has returned.
        workers = await gathered(others)
        if plan.network is not None:
            await self._have_network(plan, plan.network)
        # The master first: a name is known to the others from the moment its container runs.
        await self._start(master)
        await gathered(
            self._start_claimed(group, rank, worker, is_new)
            for rank, (worker, is_new) in zip(ranks, workers, strict=True)
        )

    async def _claim(self, plan: DockerPlan, rank: int) -> tuple[Container, bool]:
        """Create or adopt the container of the rank, and return it with whether it is new."""
        wanted = plan.containers[rank]

        async def create_or_adopt() -> tuple[Container, bool]:
            if (made := await self._create(wanted, plan)) is not None:
                return made, True
            return await self._adopt(wanted, plan), False

        return await repeated(create_or_adopt, _GOING_SECONDS, _LOOK_SECONDS)

    async def _create(self, wanted: ContainerPlan, plan: DockerPlan) -> Container | None:
        """The container, made; None if the name is taken."""
        try:
            made = await self._client.create_container(wanted.name, with_secrets(wanted))
        except Conflict:
            return None
        except NotFound as error:  # it was there a moment ago, or `pull` says that we need not look
            raise LaunchFailed(image_missing(plan.image, plan.pull, error.message)) from error
        except EngineError as error:
            raise _explained(error, wanted.name) from error
        return await self._cache.look(made)

    async def _adopt(self, wanted: ContainerPlan, plan: DockerPlan) -> Container:
        """Return the container that has the name, if it is the wanted one; NotYet while it is removed."""
        found = await self._cache.look(wanted.name)
        not_yet = NotYet(f"an earlier {wanted.name} is still being removed")
        if found is None:
            raise not_yet
        claim = claim_of(
            is_of_group=found.group == plan.group and are_ours(found.labels, plan.labels[INSTANCE]),
            is_of_job=found.submission == plan.submission,
            is_of_plan=found.digest == plan.digest,
            may_have_run=found.has_started,
            is_lost=found.restarts < wanted.restarts,
        )
        match claim:
            case Claim.TAKEN:
                raise LaunchFailed(name_taken(wanted.name))
            case Claim.PLANNED_OTHERWISE:
                raise LaunchFailed(planned_otherwise())
            case Claim.RESTART:
                log.info("removing %s, which has failed and is started again", wanted.name)
                await self._remove_lost(found)
                raise not_yet
            case Claim.REPLACE:
                log.warning("removing %s, which is of another plan", wanted.name)
                await self._remove_replaced(found)
                raise not_yet
        return found

    async def _remove_replaced(self, container: Container) -> None:
        try:
            if container.has_started and not container.has_ended:
                await self._client.kill(container.id, "SIGKILL")
            await self._client.remove(container.id)
        except (NotFound, Conflict):
            return  # it is about to end, or to be removed
        self._cache.removed(container)

    async def _have_network(self, plan: DockerPlan, name: str) -> None:
        try:
            await self._client.create_network(name, plan.labels)
        except Conflict:
            network = await self._client.network(name)
            labels = network.get("Labels") or {}
            if not are_ours(labels, plan.labels[INSTANCE]):
                raise LaunchFailed(name_taken(f"network {name}")) from None
            if labels.get(PLAN_DIGEST) != plan.digest:
                log.warning("removing network %s, which is of another plan", name)
                await self._client.remove_network(network["Id"])
                await self._client.create_network(name, plan.labels)
        except EngineError as error:
            raise _explained(error, f"network {name}") from error

    async def _start_claimed(
        self, group: ContainerGroup, rank: int, container: Container, is_new: bool
    ) -> None:
        if not is_new:
            await self._groups.wait(group, partial(_has_started, rank), _TAKE_OVER_SECONDS)
        await self._start(container)

    async def _start(self, container: Container) -> None:
        """Start it, unless that was done: as of now, not as of when it was claimed."""
        found = await self._cache.look(container.id)
        if found is None or found.has_started or found.has_ended:
            return
        try:
            await self._client.start(container.id)
        except NotFound as error:
            # It was removed, which is seen; or its network was, by somebody.
            if await self._cache.look(container.id) is not None:
                raise BackendUnavailable(f"{container.name} has lost its network: {error.message}") from error
        except EngineError as error:
            raise _explained(error, container.name) from error
        await self._cache.look(container.id)


def _is_whole(group: ContainerGroup, plan: DockerPlan) -> bool:
    """Whether every container of the attempt has been started, as far as is known here.

    Whatever configuration they were made with: they run.
    """
    known = group.living
    return len(known) == plan.instances and all(
        each.has_started
        and each.submission == plan.submission
        and each.restarts >= plan.containers[rank].restarts
        for rank, each in known.items()
    )


def _lost(group: ContainerGroup, plan: DockerPlan) -> set[int]:
    """The ranks whose containers were removed, and are not to be made again.

    Raises LaunchFailed if the group cannot go on so.
    """
    ours = {rank: each for rank, each in group.containers.items() if each.submission == plan.submission}
    if not ours and not plan.was_launched:
        return set()
    was_complete = plan.was_launched or any(each.has_started for each in ours.values())
    anew = {rank for rank, each in enumerate(plan.containers) if each.restarts > group.restarts_of(rank)}
    lost = {
        rank
        for rank in range(plan.instances)
        if (rank in group.gone if rank in ours else was_complete or rank == MASTER_RANK)
    } - anew
    if MASTER_RANK in lost or (lost and not plan.was_launched):
        raise LaunchFailed(removed(min(lost)))
    return lost


def _has_started(rank: int, group: ContainerGroup) -> bool:
    known = group.living.get(rank)
    return known is not None and known.has_started


def _explained(error: EngineError, name: str) -> Exception:
    diagnosis = diagnose_refusal(error, name)
    return error if diagnosis is None else LaunchFailed(diagnosis)
