"""Creates and starts the containers of a plan, or adopts existing containers.

The replica that creates the master's container carries out the launch. A replica that finds this container
(another replica, or the same one after a restart) waits at most two seconds until the container has started,
and then continues the launch. It waits in the same way for each other container that it finds. Without the
wait, both replicas could start the same container. If the container ended between the two starts, the second
start would run it again.

All containers are created before the first is started. So if a launch cannot create a container, no program
has run. If a started group lacks a container, the container was removed from outside, and is not created
again. The network is created after the containers, so a network without containers is a leftover, and can be
removed.

The containers of an uploaded program are created from an image that has its files: see kept_programs.py.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from job_tracker.backends.docker.cache import ContainerCache
from job_tracker.backends.docker.client import DockerClient
from job_tracker.backends.docker.containers import Container
from job_tracker.backends.docker.engine_errors import Conflict, EngineError, NotFound
from job_tracker.backends.docker.groups import ContainerGroup, Groups
from job_tracker.backends.docker.images import Images
from job_tracker.backends.docker.kept_programs import KeptPrograms, has_files
from job_tracker.backends.docker.names import are_ours
from job_tracker.backends.docker.plan import ContainerPlan, DockerPlan
from job_tracker.backends.docker.refusals import diagnose_refusal, image_missing, name_taken
from job_tracker.backends.docker.secrets import with_secrets
from job_tracker.backends.docker.status import removed
from job_tracker.backends.shared.claims import Claim, claim_of
from job_tracker.backends.shared.gathering import gathered
from job_tracker.backends.shared.instances import configuration_changed
from job_tracker.backends.shared.labels import INSTANCE, PLAN_DIGEST
from job_tracker.backends.shared.retries import NotYet, repeated
from job_tracker.domain.errors import BackendUnavailable, LaunchFailed
from job_tracker.domain.group import MASTER_RANK

log = logging.getLogger(__name__)

_GOING_SECONDS = 10.0
_LOOK_SECONDS = 0.1
_TAKE_OVER_SECONDS = 2.0


class Launcher:
    """Launches groups.

    The function `remove_lost` removes a container whose rank must be restarted. `programs` makes images with
    the files of uploaded programs.
    """

    def __init__(
        self,
        client: DockerClient,
        cache: ContainerCache,
        groups: Groups,
        images: Images,
        remove_lost: Callable[[Container], Awaitable[None]],
        programs: KeptPrograms,
    ) -> None:
        self._programs = programs
        self._remove_lost = remove_lost
        self._client = client
        self._cache = cache
        self._groups = groups
        self._images = images

    async def launch(self, plan: DockerPlan, group: ContainerGroup) -> None:
        """Create and start the missing containers of the plan. An interrupted launch may be repeated.

        Containers that were removed from outside stay missing: see `_lost`. Raises LaunchFailed if a retry
        cannot help, for example because the engine refuses a request or the master was removed. Raises
        BackendUnavailable if a retry may help. In both cases, the containers that were created stay.
        """
        if _is_whole(group, plan):
            return
        lost = _lost(group, plan)
        await self._images.ensure(plan.image, plan.pull)
        image = plan.image
        if plan.program is not None:
            image = await self._programs.ensure(plan.image, *plan.program)
        master, is_new = await self._claim(plan, MASTER_RANK, image)
        if not is_new:
            await self._groups.wait(group, partial(_has_started, MASTER_RANK), _TAKE_OVER_SECONDS)
        ranks = [rank for rank in range(1, plan.instances) if rank not in lost]
        others = [self._claim(plan, rank, image) for rank in ranks]
        # Wait for all creations even if one fails, so that no container is created after the return.
        workers = await gathered(others)
        if plan.program is not None:
            claimed = dict(zip((MASTER_RANK, *ranks), ((master, is_new), *workers), strict=True))
            claimed = await self._with_files(plan, image, claimed)
            (master, is_new), *workers = claimed.values()
        if plan.network is not None:
            await self._have_network(plan, plan.network)
        # The master starts first: the network knows the name of a container only while the container runs.
        await self._start(master)
        await gathered(
            self._start_claimed(group, rank, worker, is_new)
            for rank, (worker, is_new) in zip(ranks, workers, strict=True)
        )

    async def _claim(self, plan: DockerPlan, rank: int, image: str) -> tuple[Container, bool]:
        """Create or adopt the container of the rank. Return the container, and whether it is new."""
        wanted = plan.containers[rank]

        async def create_or_adopt() -> tuple[Container, bool]:
            if (made := await self._create(wanted, plan, image)) is not None:
                return made, True
            return await self._adopt(wanted, plan), False

        return await repeated(create_or_adopt, _GOING_SECONDS, _LOOK_SECONDS)

    async def _create(self, wanted: ContainerPlan, plan: DockerPlan, image: str) -> Container | None:
        """Create the container. Return None if the name is taken, or if the new container is already gone."""
        try:
            request = {**with_secrets(wanted), "Image": image}
            made = await self._client.create_container(wanted.name, request)
        except Conflict:
            return None
        except NotFound as error:  # the image was removed a moment ago
            if image != plan.image:
                raise BackendUnavailable(f"{image} was removed from the engine") from error
            raise LaunchFailed(image_missing(plan.image, plan.pull, error.message)) from error
        except EngineError as error:
            raise _explained(error, wanted.name) from error
        return await self._cache.look(made)

    async def _adopt(self, wanted: ContainerPlan, plan: DockerPlan) -> Container:
        """Return the existing container with the wanted name, if it is the wanted container.

        Raises NotYet while an old container of this name is being removed, and LaunchFailed if the launch can
        neither use nor replace the container.
        """
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
            case Claim.OTHER_PLAN:
                raise LaunchFailed(configuration_changed())
            case Claim.RESTART:
                log.info("removing %s: its rank has failed and will be restarted", wanted.name)
                await self._remove_lost(found)
                raise not_yet
            case Claim.REPLACE:
                log.warning(
                    "removing %s: it belongs to another plan, or to a job with the same id in another store",
                    wanted.name,
                )
                await self._remove_replaced(found)
                raise not_yet
        return found

    async def _with_files(
        self, plan: DockerPlan, image: str, claimed: Mapping[int, tuple[Container, bool]]
    ) -> dict[int, tuple[Container, bool]]:
        """Replace the containers that have not started and lack the program's files.

        Such containers come from an earlier version of the service.

        `claimed` has the containers by rank, each with a flag that is true if the container is new. The
        result has the same form.
        """
        whole = dict(claimed)
        for rank, (container, _) in claimed.items():
            if not container.has_started and not has_files(container.labels):
                await self._remove_unstarted(container)
                whole[rank] = await self._claim(plan, rank, image)
        return whole

    async def _remove_unstarted(self, container: Container) -> None:
        log.info("replacing %s: it lacks the files of the uploaded program", container.name)
        try:
            await self._client.remove(container.id)
        except NotFound:
            pass
        except Conflict as error:
            raise BackendUnavailable(f"{container.name} has just been started: {error.message}") from error
        self._groups.forget(container)
        self._cache.removed(container)

    async def _remove_replaced(self, container: Container) -> None:
        try:
            if container.has_started and not container.has_ended:
                await self._client.kill(container.id, "SIGKILL")
            await self._client.remove(container.id)
        except (NotFound, Conflict):
            return  # it is about to end or to be removed
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
                log.warning("removing network %s: it belongs to another plan", name)
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
        """Start the container, unless it is gone or was started already."""
        found = await self._cache.look(container.id)
        if found is None or found.has_started or found.has_ended:
            return
        try:
            await self._client.start(container.id)
        except NotFound as error:
            # If the container is gone, `look` records this. Otherwise, its network was removed.
            if await self._cache.look(container.id) is not None:
                raise BackendUnavailable(f"{container.name} has lost its network: {error.message}") from error
        except EngineError as error:
            raise _explained(error, container.name) from error
        await self._cache.look(container.id)


def _is_whole(group: ContainerGroup, plan: DockerPlan) -> bool:
    """Return whether every container of the attempt was started, as far as the cache knows.

    Containers that were created from another configuration count, too: a later change of the configuration
    does not affect a launch that was complete.
    """
    known = group.living
    return len(known) == plan.instances and all(
        each.has_started
        and each.submission == plan.submission
        and each.restarts >= plan.containers[rank].restarts
        for rank, each in known.items()
    )


def _lost(group: ContainerGroup, plan: DockerPlan) -> set[int]:
    """Return the ranks whose containers were removed from outside and must not be created again.

    Raises LaunchFailed if the group cannot continue without them.
    """
    ours = {rank: each for rank, each in group.containers.items() if each.submission == plan.submission}
    if not ours and not plan.was_launched:
        return set()
    was_complete = plan.was_launched or any(each.has_started for each in ours.values())
    restarted = {rank for rank, each in enumerate(plan.containers) if each.restarts > group.restarts_of(rank)}
    lost = {
        rank
        for rank in range(plan.instances)
        if (rank in group.gone if rank in ours else was_complete or rank == MASTER_RANK)
    } - restarted
    if MASTER_RANK in lost or (lost and not plan.was_launched):
        raise LaunchFailed(removed(min(lost)))
    return lost


def _has_started(rank: int, group: ContainerGroup) -> bool:
    known = group.living.get(rank)
    return known is not None and known.has_started


def _explained(error: EngineError, name: str) -> Exception:
    diagnosis = diagnose_refusal(error, name)
    return error if diagnosis is None else LaunchFailed(diagnosis)
