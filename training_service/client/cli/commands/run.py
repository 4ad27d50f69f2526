"""trainctl run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from training_service._generated.training_service_pb2 import TrainingStatus, TrainResponse
from training_service.client.cli import exit_codes
from training_service.client.cli.background import BackgroundService
from training_service.client.cli.commands import pods, policy_options, submission
from training_service.client.cli.commands.assignments import parsed
from training_service.client.cli.commands.quantities import quantity
from training_service.client.cli.following import detach_on_interrupt
from training_service.client.cli.output import Output, remark
from training_service.client.cli.render import lines
from training_service.client.cli.render.ranks import RankPrefixes
from training_service.client.cli.render.terminal import TerminalText
from training_service.client.cli.render.words import count
from training_service.client.cli.session import Session, session_of
from training_service.client.connection import DEFAULT_ADDRESS
from training_service.client.errors import InvalidRequest
from training_service.client.requests import new_request_key
from training_service.client.run.working_tree import MAX_FILES, WorkingTree, read_folder
from training_service.client.sync import TrainingClient

SETTINGS = {"allow_interspersed_args": False, "ignore_unknown_options": False}
"""Settings of Typer: everything after the program belongs to the program, not to trainctl."""
_PYTHON = "python"
_MAX_SIZE = "1Gi"
_SHOWN_FROM = 1_000_000  # bytes; the progress of smaller uploads is not printed


def run(
    context: typer.Context,
    program: Annotated[
        list[str],
        typer.Argument(
            metavar="PROGRAM [--] [ARGUMENT]...",
            help="A Python file of the folder, or a command; with its arguments.",
        ),
    ],
    folder: Annotated[
        Path, typer.Option("--folder", "-C", metavar="FOLDER", help="The folder to upload.")
    ] = Path(),
    max_size: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="The largest folder that is sent. The service has its own limit, programs.max_bytes.",
        ),
    ] = _MAX_SIZE,
    max_files: Annotated[
        int,
        typer.Option(min=1, help="The most files to send. The service has a limit, too: programs.max_files."),
    ] = MAX_FILES,
    instances: Annotated[
        int | None,
        typer.Option("--instances", "-n", min=1, help="The number of instances that train together."),
    ] = None,
    nproc: Annotated[
        int, typer.Option("--nproc", "--nproc-per-node", min=1, help="Training processes per instance.")
    ] = 1,
    framework: Annotated[
        str, typer.Option(metavar="NAME", help="The framework that sets up the group. Default: pytorch.")
    ] = "",
    environment: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME=VALUE", help="An environment variable. Repeatable."),
    ] = None,
    requirements: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="A file of the folder with the Python packages that the program needs."
        ),
    ] = "",
    python_environment: Annotated[
        str,
        typer.Option(
            "--environment", metavar="NAME", help="A Python environment that the operator has configured."
        ),
    ] = "",
    image: Annotated[
        str,
        typer.Option(
            metavar="REF", help="The image to run in, one that the operator allows (Docker, Kubernetes)."
        ),
    ] = "",
    resource: pods.Resources = None,
    name: Annotated[
        str, typer.Option(help="A name of the job, for people to read. Default: that of the program's file.")
    ] = "",
    model: Annotated[str, typer.Option(metavar="NAME", help="The name of the trained model.")] = "",
    tag: submission.Tags = None,
    tree: Annotated[
        str,
        typer.Option(
            metavar="HASH", help="Files that were uploaded before, instead of a folder: see trainctl clone."
        ),
    ] = "",
    code_version: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The version of the files. Default: the folder's git commit."),
    ] = None,
    dataset: Annotated[str, typer.Option("--dataset", "-d", metavar="ID", help="A dataset's id.")] = "",
    version: Annotated[
        str, typer.Option("--version", metavar="HASH", help="The hash of the dataset's version.")
    ] = "",
    detach: Annotated[
        bool, typer.Option("--detach", help="Print the job's id, and do not follow the job.")
    ] = False,
    start: Annotated[
        bool,
        typer.Option(help="Start a service on this machine if none runs and you have not chosen another."),
    ] = True,
    max_attempts: policy_options.MaxAttempts = None,
    retry_on: policy_options.RetryOn = None,
    backoff: policy_options.Backoff = None,
    max_backoff: policy_options.MaxBackoff = None,
    queue_deadline: policy_options.QueueDeadline = None,
    start_deadline: policy_options.StartDeadline = None,
    run_deadline: policy_options.RunDeadline = None,
    progress_deadline: policy_options.ProgressDeadline = None,
    node_selector: pods.NodeSelector = None,
    toleration: pods.Tolerations = None,
    priority_class: pods.PriorityClass = "",
    label: pods.Labels = None,
    annotation: pods.Annotations = None,
    near: pods.Near = "",
    apart: pods.Apart = "",
    strict_placement: pods.StrictPlacement = False,
    request_key: submission.RequestKey = None,
    on_nonfinite: policy_options.OnNonfinite = "",
    nonfinite_metric: policy_options.NonfiniteMetrics = None,
    queue: policy_options.Queue = "",
    priority: policy_options.Priority = "",
    expected: policy_options.Expected = None,
    flavor: policy_options.Flavor = "",
) -> None:
    """Run a program of your own: upload the working folder, run it as a job, and show its output.

    The folder is uploaded without files that git ignores, .git, __pycache__ and virtual environments. Only
    files that the service lacks are sent. Every instance starts in its own copy of the folder. The job's
    outcome is the exit code. Ctrl-C leaves the job running, and prints how to follow it again.

    trainctl run -n 3 train.py -- --lr 0.1
    """
    session = session_of(context)
    files = None if tree else read_folder(folder, max_bytes=_bytes(max_size), max_files=max_files)
    command = _command(program, files)
    key = request_key or new_request_key()
    if start:
        _start_service(session)
    with session.client() as client:
        with submission.repeatable(key):
            job = client.run(
                command,
                folder=files or folder,
                tree=tree,
                framework=framework,
                environment=parsed(environment or (), "-e"),
                requirements=Path(requirements).as_posix() if requirements else "",
                python_environment=python_environment,
                image=image,
                instances=instances,
                name=name or _name_of(program[0]),
                dataset_id=dataset,
                dataset_version=version,
                output_model_name=model,
                tags=tag or (),
                version=code_version,
                request_key=key,
                pod_options=pods.pod_options(
                    resources=resource,
                    nproc_per_node=nproc,
                    node_selector=node_selector,
                    tolerations=toleration,
                    priority_class=priority_class,
                    labels=label,
                    annotations=annotation,
                    near=near,
                    apart=apart,
                    strict_placement=strict_placement,
                ),
                retry_policy=policy_options.retry_policy(max_attempts, retry_on, backoff, max_backoff),
                deadlines=policy_options.deadlines(
                    queue_deadline, start_deadline, run_deadline, progress_deadline
                ),
                number_policy=policy_options.number_policy(on_nonfinite, nonfinite_metric),
                queue=queue,
                priority=priority,
                expected=expected,
                flavor=flavor,
                on_progress=Progress(session.output).show,
            )
        if detach:
            session.output.show(TrainResponse(job_id=job), lambda answer: str(answer.job_id), _submitted)
            return
        sent = (
            f"{count(len(files.files), 'file')} of {folder.resolve()}"
            if files
            else f"the files of tree {tree}"
        )
        session.output.note(f"job {job}: {sent}")
        _follow(session, client, job, all_ranks=(instances or 1) > 1)


def _bytes(max_size: str) -> int:
    try:
        return int(quantity(max_size, "--max-size"))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _start_service(session: Session) -> None:
    """Start a service at the default address if none runs there and the user chose no other service."""
    service = BackgroundService(DEFAULT_ADDRESS)
    if service.is_wanted(session.connection) and (pid := service.start()):
        remark(
            f"no service ran at {service.address}, so one was started: pid {pid}, log {service.log}. "
            "To stop it: trainctl stop-service"
        )


def _submitted(answer: TrainResponse) -> str:
    return f"Submitted job {answer.job_id}."


def _command(program: Sequence[str], files: WorkingTree | None) -> list[str]:
    """Return the command that runs the program.

    A `--` directly after the program is dropped. `files` is None if the files were uploaded before. Raises
    InvalidRequest if the program is a Python file that is not among the files.
    """
    first, *arguments = program
    if arguments[:1] == ["--"]:
        del arguments[0]
    if not first.endswith(".py"):
        return [first, *arguments]
    path = Path(first).as_posix()
    if files is not None and Path(first).is_relative_to(files.folder):  # an absolute path
        path = Path(first).relative_to(files.folder).as_posix()
    if files is not None and path not in {file.path for file in files.files}:
        raise InvalidRequest(
            f"{first} is not among the files of {files.folder} that are sent; give a path in this folder, "
            "and check that git does not ignore the file"
        )
    return [_PYTHON, path, *arguments]


def _name_of(program: str) -> str:
    """Return the program's file name if it is allowed as the name of a job; empty if it is not."""
    name = Path(program).name
    return name if name[:1].isalnum() and all(c.isalnum() or c in " ._-" for c in name) else ""


class Progress:
    """Prints the progress of a large upload after each tenth of it."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._shown = 0

    def show(self, sent: int, total: int) -> None:
        """Print that `sent` of `total` bytes were sent, if another tenth of a large upload is complete."""
        tenths = 10 * sent // total if total else 10
        if total >= _SHOWN_FROM and tenths > self._shown:
            self._shown = tenths
            self._output.note(f"sent {sent / 1e6:.1f} of {total / 1e6:.1f} MB")


def _follow(session: Session, client: TrainingClient, job: int, *, all_ranks: bool) -> None:
    """Show the output of a job until it ends, then exit with the code of its outcome."""
    prefixes, texts = RankPrefixes(), dict[tuple[int, int], TerminalText]()
    with detach_on_interrupt(session, job):
        status = client.status(job)
        if status.status == TrainingStatus.queuing and status.positionInQueue:
            session.output.note(f"job {job}: {status.message}")
        attempt = 1
        for chunk in client.logs(job, all_ranks=all_ranks, follow=True):
            text = chunk.text
            if chunk.attempt > attempt:  # the output of another attempt begins
                attempt = chunk.attempt
                session.output.note(f"job {job}: attempt {attempt}; trainctl describe {job} says why")
            if session.output.on_terminal:
                text = texts.setdefault((chunk.attempt, chunk.rank), TerminalText()).cleaned(text)
            session.output.show_text(chunk, prefixes.prefixed(chunk.rank, text) if all_ranks else text)
        status = client.wait(job)
    tell = session.output.note if status.status == TrainingStatus.succeed else remark
    for line in lines.update(status).splitlines():
        tell(line)
    raise typer.Exit(exit_codes.of_outcome(status.status))
