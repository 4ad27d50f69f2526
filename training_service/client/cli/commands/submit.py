"""trainctl submit."""

from typing import Annotated

import typer

from training_service.client.cli.commands import auto_options as auto
from training_service.client.cli.commands import pods, policy_options, submission
from training_service.client.cli.commands.assignments import parsed
from training_service.client.cli.session import session_of
from training_service.client.requests import new_request_key


def submit(
    context: typer.Context,
    algorithm: Annotated[
        str, typer.Argument(metavar="ALGORITHM", help="An algorithm of the service; see trainctl algorithms.")
    ],
    dataset: Annotated[
        str,
        typer.Option(
            "--dataset",
            "-d",
            metavar="ID",
            help="The dataset's id. Not for algorithms that need no dataset.",
        ),
    ] = "",
    version: Annotated[
        str, typer.Option("--version", metavar="HASH", help="The hash of the dataset's version.")
    ] = "",
    name: Annotated[str, typer.Option("--name", help="A name of the job, for people to read.")] = "",
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", "-p", metavar="KEY=VALUE", help="A parameter. Repeatable."),
    ] = None,
    instances: Annotated[
        str | None,
        typer.Option(
            *("--instances", "-n"),
            metavar="NUMBER|auto",
            help="The number of instances that train together; auto: a short study chooses the number.",
        ),
    ] = None,
    min_instances: auto.MinInstances = None,
    max_instances: auto.MaxInstances = None,
    least_efficiency: auto.LeastEfficiency = None,
    price: auto.Price = None,
    value_of_time: auto.ValueOfTime = None,
    metric: auto.Metric = None,
    enough: auto.Enough = None,
    study: auto.Study = None,
    every: auto.Every = None,
    model: Annotated[str, typer.Option(metavar="NAME", help="The name of the trained model.")] = "",
    tag: submission.Tags = None,
    request_key: submission.RequestKey = None,
    follow_it: submission.Follow = False,
    max_attempts: policy_options.MaxAttempts = None,
    retry_on: policy_options.RetryOn = None,
    backoff: policy_options.Backoff = None,
    max_backoff: policy_options.MaxBackoff = None,
    queue_deadline: policy_options.QueueDeadline = None,
    start_deadline: policy_options.StartDeadline = None,
    run_deadline: policy_options.RunDeadline = None,
    progress_deadline: policy_options.ProgressDeadline = None,
    on_nonfinite: policy_options.OnNonfinite = "",
    nonfinite_metric: policy_options.NonfiniteMetrics = None,
    resource: pods.Resources = None,
    nproc_per_node: pods.ProcessesPerInstance = 1,
    node_selector: pods.NodeSelector = None,
    toleration: pods.Tolerations = None,
    priority_class: pods.PriorityClass = "",
    label: pods.Labels = None,
    annotation: pods.Annotations = None,
    near: pods.Near = "",
    apart: pods.Apart = "",
    strict_placement: pods.StrictPlacement = False,
    queue: policy_options.Queue = "",
    priority: policy_options.Priority = "",
    expected: policy_options.Expected = None,
    flavor: policy_options.Flavor = "",
) -> None:
    """Queue a training job and print its id.

    If the output is not a terminal, the first line is the id alone: JOB=$(trainctl submit ...).
    """
    session = session_of(context)
    parameters = parsed(parameter or (), "-p")
    pod_options = pods.pod_options(
        resources=resource,
        nproc_per_node=nproc_per_node,
        node_selector=node_selector,
        tolerations=toleration,
        priority_class=priority_class,
        labels=label,
        annotations=annotation,
        near=near,
        apart=apart,
        strict_placement=strict_placement,
    )
    number = auto.number(instances)
    wish = auto.wish(
        algorithm,
        wanted=instances == auto.AUTO,
        min_instances=min_instances,
        max_instances=max_instances,
        least_efficiency=least_efficiency,
        price=price,
        value_of_time=value_of_time,
        metric=metric,
        enough=enough,
        study=study,
        every=every,
    )
    retries = policy_options.retry_policy(max_attempts, retry_on, backoff, max_backoff)
    deadlines = policy_options.deadlines(queue_deadline, start_deadline, run_deadline, progress_deadline)
    numbers = policy_options.number_policy(on_nonfinite, nonfinite_metric)
    key = request_key or new_request_key()
    if wish is not None:
        messages = {
            "pod_options": pod_options,
            "retry_policy": retries,
            "deadlines": deadlines,
            "number_policy": numbers,
        }
        waits = {"queue": queue, "priority": priority, "flavor": flavor}
        decision = auto.decided(session, algorithm, wish, dataset, version, parameters, messages, waits)
        number, parameters = decision.instances, dict(decision.parameters)
        key = request_key or decision.request_key
    with session.client() as client:
        with submission.repeatable(key):
            job = client.submit(
                algorithm,
                dataset,
                version,
                name=name,
                parameters=parameters,
                instances=number,
                output_model_name=model,
                request_key=key,
                pod_options=pod_options,
                retry_policy=retries,
                deadlines=deadlines,
                number_policy=numbers,
                queue=queue,
                priority=priority,
                expected=expected,
                flavor=flavor,
                tags=tag or (),
            )
        submission.report(session, client, job, followed=follow_it)
