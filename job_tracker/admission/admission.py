"""Turns a request into a job spec that can run, or into an error that names the invalid field."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from job_tracker.admission.dataset_versions import DatasetVersions
from job_tracker.admission.programs import PROGRAM, NoTrees, ProgramRequest, Trees, accepted, algorithm_of
from job_tracker.admission.queues import (
    OneQueue,
    Queues,
    check_fit,
    expected_of,
    flavor_of,
    priority_of,
    queue_of,
)
from job_tracker.admission.resolution import Resolver
from job_tracker.catalog import INSTANCES_PARAMETER, Algorithm, Catalog, Entry, JobDefaults
from job_tracker.catalog.entries import required
from job_tracker.catalog.groups import GROUP_PARAMETERS
from job_tracker.catalog.requested import PROCESSES_PER_INSTANCE
from job_tracker.catalog.templates import DATA_URI
from job_tracker.common.printable import quoted
from job_tracker.domain import naming
from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import InvalidField
from job_tracker.domain.group import GroupSpec, InstanceOptions
from job_tracker.domain.job_spec import JobSpec
from job_tracker.store.jobs import RequestKey

MAX_NAME = 128
MAX_PARAMETERS = 256
MAX_PARAMETER_BYTES = 64 * 1024
_MOST_GROUPS = 1024
_GIVE_DATASET = "; give a dataset and its version (in trainctl: --dataset and --version)"

# The form of texts that become parts of paths and URIs: no separators, no "..", and no character with a
# special meaning in shells or URLs, except "=" and "+", which hashes in base 64 need.
_PATH_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_=+-]|\.(?!\.)){0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """An unchecked submission. An empty string means that the client did not send the value."""

    algorithm: str
    dataset_id: str
    dataset_version: str
    name: str = ""
    model_name: str = ""
    parameters: Mapping[str, str]
    request_key: str = ""
    pod_options: Mapping[str, Any] = field(default_factory=dict)
    retry: Mapping[str, Any] = field(default_factory=dict)
    deadlines: Mapping[str, float] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()
    program: ProgramRequest | None = None
    queue: str = ""
    priority: str = ""
    expected: float | None = None
    """The expected run time of an attempt, in seconds."""
    flavor: str = ""


_YOUNGER_FIELDS = (
    "pod_options",
    "retry",
    "deadlines",
    "numbers",
    "tags",
    "program",
    "queue",
    "priority",
    "expected",
    "flavor",
)


class Admission:
    """Checks requests against the catalog of algorithms and datasets, and against the configuration.

    `resolver` knows the backend that jobs run on. `defaults` has the retry policy, the deadlines and the
    number policy for requests that do not set them. `max_processes` bounds the training processes of one job;
    None: the bound is PROCESSES_PER_INSTANCE for each instance that a job may have. `store_id` is part of the
    paths of new jobs' folders. `trees` are the uploaded programs. Without `queues`, there is one queue for
    all projects, with a capacity of `capacity` instances.
    """

    def __init__(
        self,
        catalog: Catalog,
        resolver: Resolver,
        *,
        capacity: int = 1,
        max_processes: int | None = None,
        models_uri: str,
        checkpoints_uri: str,
        store_id: str = "",
        defaults: JobDefaults | None = None,
        trees: Trees | None = None,
        queues: Queues | None = None,
    ) -> None:
        self._catalog = catalog
        self._versions = DatasetVersions(catalog)
        self._max_processes = max_processes
        self._models_uri = models_uri
        self._checkpoints_uri = checkpoints_uri
        self._store_id = store_id
        self._resolver = resolver
        self._defaults = defaults or JobDefaults()
        self._trees = trees or NoTrees()
        self._queues = queues or OneQueue(capacity)
        self._groups: dict[tuple[object, ...], tuple[GroupSpec, InstanceOptions]] = {}

    @property
    def _most_instances(self) -> int:
        """The largest number of instances that a job may have at present."""
        return self._queues.tree.most_instances

    def key_of(self, caller: Caller, request: JobRequest) -> RequestKey | None:
        """Return the key with which the client may repeat the request.

        None: the request has no key. Raises InvalidField if the key is not allowed. Each project has its own
        keys.
        """
        key = request.request_key
        if not key:
            return None
        if len(key) > MAX_NAME or not key.isprintable():
            raise InvalidField(
                "request_key",
                f"{quoted(key)} is not allowed: use at most {MAX_NAME} printable characters",
            )
        values = {**asdict(request), "request_key": ""}
        for name in _YOUNGER_FIELDS:
            if not values[name]:
                del values[name]  # so the digest stays as it was before the service had this field
        content = json.dumps(values, sort_keys=True)
        return RequestKey(key, hashlib.sha256(content.encode()).digest(), caller.default_project)

    async def check(self, caller: Caller, request: JobRequest) -> JobSpec:
        """Return the spec of the requested job, which belongs to the caller's default project.

        Raises InvalidField or UnknownReference for the first invalid field; the message has its value and the
        allowed values. Raises Forbidden for a program if the service runs no uploaded programs, and
        StorageUnavailable if the dataset's storage does not answer.
        """
        program, project, tree = request.program, caller.default_project, self._queues.tree
        queue = queue_of(tree, project, request.queue)
        priority = priority_of(tree, queue, request.priority)
        expected = expected_of(request.expected)
        flavor = flavor_of(tree, request.flavor)
        entries = self._catalog.algorithms(project)
        self._check_required(request, entries.get(request.algorithm))
        if program:
            made = algorithm_of(program, request.algorithm)
            entry, algorithm = Entry(name=PROGRAM, value=made), made
        else:
            entry, algorithm = required("algorithm", entries, request.algorithm)
        algorithm_name = entry.name
        name = _checked_name(request.name) or algorithm_name
        has_dataset = bool(request.dataset_id)
        if has_dataset:
            _check_path_part("dataset_id", request.dataset_id)
            _check_path_part("train_data_version_hash", request.dataset_version)
        if request.model_name:
            _check_path_part("output_model_name", request.model_name)
        _check_amount(request.parameters)
        environment = algorithm.resolve(request.parameters)
        group, pod_options = self._group(request, entry, algorithm)
        if program:
            group = self._resolver.in_environment(
                group, program.requirements, program.python_environment, program.image
            )
            await self._trees.require(project, program.tree, program.requirements)
            if program.changes:
                await self._trees.use_changes(project, program.changes.tree)
        retry = self._defaults.retry_of(request.retry)
        deadlines = self._defaults.deadlines_of(request.deadlines, algorithm.progress_deadline)
        data_uri, declaration = "", 0
        if has_dataset:
            data_uri, declaration = await self._versions.uri_of(
                caller, request.dataset_id, request.dataset_version
            )
        if not program:
            group = algorithm.filled(group, {**environment, **({DATA_URI: data_uri} if data_uri else {})})
        numbers = self._defaults.numbers_of(request.numbers, algorithm.on_nonfinite)
        spec = JobSpec(
            group=group,
            algorithm=algorithm_name,
            dataset_id=request.dataset_id,
            dataset_version=request.dataset_version,
            name=name,
            model_name=(model_name := request.model_name or naming.slug(name, MAX_NAME)),
            parameters=dict(request.parameters),
            environment=environment,
            data_uri=data_uri,
            model_root=f"{self._models_uri}/{model_name}",
            checkpoint_root=self._checkpoints_uri,
            pod_options=pod_options,
            code_version=algorithm.version,
            algorithm_version=entry.version,
            dataset_declaration=declaration,
            retry=retry,
            deadlines=deadlines,
            numbers=numbers,
            home=naming.home(project, self._store_id) if self._store_id else "",
            project=project,
            submitted_by=caller.name,
            program=accepted(program) if program else None,
            queue=queue,
            priority=priority,
            expected=expected,
            flavor=flavor,
        )
        check_fit(tree, spec)
        return spec

    def max_queued_of(self, queue: str) -> int | None:
        """Return how many jobs may wait in a queue. None: it has no limit of its own, or is unknown."""
        found = self._queues.tree.queues.get(queue)
        return found.max_queued if found else None

    @staticmethod
    def _check_required(request: JobRequest, entry: Entry[Algorithm] | None) -> None:
        """Raise InvalidField for an empty field that must not be empty."""
        known = entry.value if entry else None
        needs_algorithm = request.program is None
        # If the algorithm needs no dataset, the request may name a dataset and its version, or neither. An
        # unknown algorithm is refused later.
        needs_dataset = bool(request.dataset_id or request.dataset_version) or (
            needs_algorithm and known is not None and known.dataset
        )
        for name, text, is_needed, advice in (
            ("algorithm", request.algorithm, needs_algorithm, ""),
            ("dataset_id", request.dataset_id, needs_dataset, _GIVE_DATASET),
            ("train_data_version_hash", request.dataset_version, needs_dataset, _GIVE_DATASET),
        ):
            if is_needed and not text:
                raise InvalidField(name, f"must not be empty{advice}")

    def _group(
        self, request: JobRequest, entry: Entry[Algorithm], algorithm: Algorithm
    ) -> tuple[GroupSpec, InstanceOptions]:
        """Return the resolved group, with placeholders still in its commands, and its checked options."""
        # Groups are cached: the result depends on few parameters, and is the same for most jobs of an
        # algorithm. A group is not cached if the request has instance options or an uploaded program, since
        # these may be large and differ with each request.
        is_known_kind = not (request.pod_options or request.program)
        asked = [part for part in request.parameters.items() if part[0] in GROUP_PARAMETERS]
        key = (entry, *asked)
        if is_known_kind and (known := self._groups.get(key)):
            return known
        composition = algorithm.composer.compose(request.parameters, self._most_instances)
        pod_options = self._pod_options(request.pod_options)
        if program := request.program:
            group = self._resolver.resolve_program(
                algorithm.framework, program.command, composition, pod_options
            )
        else:
            group = self._resolver.resolve(entry, composition, pod_options)
        self._check_processes(group, composition.trainers, pod_options)
        if is_known_kind:
            if len(self._groups) >= _MOST_GROUPS:
                del self._groups[next(iter(self._groups))]
            self._groups[key] = group, pod_options
        return group, pod_options

    def _pod_options(self, sent: Mapping[str, Any]) -> InstanceOptions:
        limits = self._resolver.limits
        if sent and limits is None:
            raise InvalidField("pod_options", "must be empty: this service does not run jobs as pods")
        return limits.check(sent) if limits else InstanceOptions()

    def _check_processes(self, group: GroupSpec, trainers: int, sent: InstanceOptions) -> None:
        """Raise InvalidField if the job has too many training processes.

        The capacity does not limit processes, since it counts instances.
        """
        each, total = group.trainers.processes, group.training_processes
        most = self._max_processes or PROCESSES_PER_INSTANCE * self._most_instances
        if total <= most:
            return
        allowed = (
            f"a job may have at most {most} (scheduling.max_processes): ask for fewer processes or instances"
        )
        if sent.nproc_per_node:
            raise InvalidField(
                "pod_options.nproc_per_node",
                f"{each} in each of {trainers} instances makes {total} training processes; {allowed}",
            )
        raise InvalidField(
            f"parameters.{INSTANCES_PARAMETER}",
            f"{trainers} instances of {each} processes each make {total} training processes; {allowed}",
        )


def _checked_name(name: str) -> str:
    if (
        len(name) > MAX_NAME
    ):  # checked first: the time to normalize a text can grow with the square of its length
        raise InvalidField("name", f"has {len(name)} characters; at most {MAX_NAME} are allowed")
    name = unicodedata.normalize("NFC", name)
    if name and not (name[0].isalnum() and all(c.isalnum() or c in " ._-" for c in name)):
        raise InvalidField(
            "name",
            f"{quoted(name)} is not allowed: use letters, digits, spaces and . _ -, and begin with a "
            "letter or digit",
        )
    return name.strip()


def _check_path_part(field: str, text: str) -> None:
    if not _PATH_PART.fullmatch(text):
        raise InvalidField(
            field,
            f"{quoted(text)} is not allowed: use at most {MAX_NAME} of the letters A to Z, digits and "
            ". _ - + =; begin with a letter, a digit or _, and do not put two dots in a row",
        )


def _check_amount(parameters: Mapping[str, str]) -> None:
    if len(parameters) > MAX_PARAMETERS:
        raise InvalidField(
            "parameters", f"has {len(parameters)} entries; at most {MAX_PARAMETERS} are allowed"
        )
    size = sum(len(name.encode()) + len(value.encode()) for name, value in parameters.items())
    if size > MAX_PARAMETER_BYTES:
        raise InvalidField(
            "parameters", f"has {size} bytes in all; at most {MAX_PARAMETER_BYTES} are allowed"
        )
