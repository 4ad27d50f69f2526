"""The accepted request for a job, which never changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from job_tracker.domain import naming
from job_tracker.domain.group import GroupSpec, InstanceOptions
from job_tracker.domain.policies import Deadlines, NumberPolicy, RetryPolicy


@dataclass(frozen=True, slots=True)
class ProgramChanges:
    """The uncommitted changes of a program's files, which are recorded with the job."""

    tree: str
    """The name of the tree that has the text of the changes. The tree is in the job's project."""
    added: int = 0
    """The number of added lines."""
    removed: int = 0
    """The number of removed lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The uploaded program of a job. Its command and its framework are in the spec of the job's group."""

    tree: str
    """The name of the tree of the program's files. The tree is in the job's project."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The variables that the caller sent."""
    requirements: str = ""
    """The path, in the tree, of the file that lists the needed Python packages; empty: none."""
    python_environment: str = ""
    """The name of a configured Python environment; empty: the default one."""
    image: str = ""
    """The image that the caller named; empty: none. The image that is used is in the spec of the group."""
    changes: ProgramChanges | None = None
    """The changes since the commit in the job's `code_version`; None: none are recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """The accepted request: checked, with every default filled in. It never changes."""

    group: GroupSpec
    """The spec of the group. This field must stay the first one.

    A stored spec that does not begin with this field is from a version of the service without groups.
    """
    algorithm: str
    dataset_id: str
    """Empty for a job without a dataset, as are `dataset_version` and `data_uri`."""
    dataset_version: str
    name: str
    model_name: str
    parameters: Mapping[str, str]
    """The parameters that the caller sent."""
    environment: Mapping[str, str]
    """The variables that the processes get from parameters; see Algorithm.resolve."""
    data_uri: str
    model_root: str
    checkpoint_root: str
    pod_options: InstanceOptions = InstanceOptions()  # noqa: RUF009  # it is immutable
    """The checked instance options of the request."""
    code_version: str = ""
    """The version of the training code: as configured at submission, or as sent with a program."""
    algorithm_version: int = 0
    """The version of the algorithm's declaration at admission; 0 if the API did not declare the algorithm."""
    dataset_declaration: int = 0
    """The version of the dataset's declaration at admission; 0 if the API did not declare the dataset.

    For the version of the data, see `dataset_version`.
    """
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    deadlines: Deadlines = field(default_factory=Deadlines)
    numbers: NumberPolicy = field(default_factory=NumberPolicy)
    home: str = ""
    """PROJECT/STORE, with which the paths of the job's folders begin (see naming.job_folder).

    Empty for jobs that were accepted before jobs had homes.
    """
    project: str = naming.DEFAULT_PROJECT
    """The project that the job belongs to. The roles in this project decide the rights to the job."""
    submitted_by: str = ""
    """The name of the caller; empty for jobs that were accepted before there were projects."""
    program: Program | None = None
    """The uploaded program; None for a configured algorithm."""
    queue: str = naming.DEFAULT_QUEUE
    """The queue in which the job waits."""
    priority: int = 0
    """Jobs with a higher priority go first in their queue."""
    expected: timedelta | None = None
    """The run time of an attempt, as the caller states it; None: not stated."""
    flavor: str = ""
    """The kind of machine on which the job runs; empty: any."""

    @property
    def instances(self) -> int:
        """Return the number of instances: the master, its workers, and the instances of other roles."""
        return self.group.size
