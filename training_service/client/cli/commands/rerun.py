"""trainctl rerun and trainctl clone."""

from typing import Annotated

import typer

from training_service.client import requests, submissions
from training_service.client.cli.commands import policy_options, submission
from training_service.client.cli.commands.arguments import Job
from training_service.client.cli.commands.assignments import parsed
from training_service.client.cli.output import remark
from training_service.client.cli.session import session_of

Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "--parameter", "-p", metavar="KEY=VALUE", help="Another value of a parameter. Repeatable."
    ),
]
Name = Annotated[str | None, typer.Option("--name", help="Another name.")]
Dataset = Annotated[str | None, typer.Option("--dataset", "-d", metavar="ID", help="Another dataset.")]
Version = Annotated[
    str | None, typer.Option("--version", metavar="HASH", help="Another version of the dataset.")
]
Environment = Annotated[
    list[str] | None,
    typer.Option(
        "--env", "-e", metavar="NAME=VALUE", help="Another variable of an uploaded program. Repeatable."
    ),
]
Command = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- COMMAND...]", help="Another command of an uploaded program.", show_default=False
    ),
]


def rerun(
    context: typer.Context,
    job: Job,
    changes: Changes = None,
    name: Name = None,
    dataset: Dataset = None,
    version: Version = None,
    request_key: submission.RequestKey = None,
    follow_it: submission.Follow = False,
    queue_deadline: policy_options.QueueDeadline = None,
    start_deadline: policy_options.StartDeadline = None,
    run_deadline: policy_options.RunDeadline = None,
    progress_deadline: policy_options.ProgressDeadline = None,
    environment: Environment = None,
    command: Command = None,
) -> None:
    """Queue a new job with the same request as JOB, and print the id of the new job.

    The new job is in the --project or, without --project, in the project of JOB. Values that JOB got by
    default stay as they were, even if the defaults have changed. `trainctl clone` prints the same request
    as a command. A job of an uploaded program runs with the same files; its variables and its command can be
    changed:

    trainctl rerun 7 -e MODE=fast -- python train.py --lr 0.2
    """
    session = session_of(context)
    parameters = parsed(changes or (), "--set")
    key = request_key or requests.new_request_key()
    with session.client() as client:
        with submission.repeatable(key):
            new = client.rerun(
                job,
                parameters=parameters,
                name=name,
                dataset_id=dataset,
                dataset_version=version,
                command=command,
                environment=parsed(environment or (), "-e"),
                deadlines=policy_options.deadlines(
                    queue_deadline, start_deadline, run_deadline, progress_deadline
                ),
                request_key=key,
            )
        submission.report(session, client, new, followed=follow_it)


def clone(
    context: typer.Context,
    job: Job,
    changes: Changes = None,
    name: Name = None,
    dataset: Dataset = None,
    version: Version = None,
    queue_deadline: policy_options.QueueDeadline = None,
    start_deadline: policy_options.StartDeadline = None,
    run_deadline: policy_options.RunDeadline = None,
    progress_deadline: policy_options.ProgressDeadline = None,
    environment: Environment = None,
    command: Command = None,
) -> None:
    """Print the command that submits the same job, including all values that JOB had by default.

    With --json, print the TrainRequest instead, without its request key.
    """
    session = session_of(context)
    parameters = parsed(changes or (), "--set")
    with session.client() as client:
        request = requests.changed(
            client.request_of(job),
            parameters=parameters,
            name=name,
            dataset_id=dataset,
            dataset_version=version,
            request_key=None,
            command=command,
            environment=parsed(environment or (), "-e"),
            deadlines=policy_options.deadlines(
                queue_deadline, start_deadline, run_deadline, progress_deadline
            ),
        )
        project = session.project or client.status(job).project
    request.ClearField("request_key")
    words, lacking = submissions.words_of(request, project)
    session.output.show_text(request, submissions.joined(["trainctl", *words]) + "\n")
    for what in lacking:
        remark(f"trainctl {words[0]} has no option for {what}; `trainctl rerun {job}` keeps it")
