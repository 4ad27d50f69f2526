"""Converts a request to the command that submits it."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from training_service._generated.training_service_pb2 import PodOptions, Toleration, TrainRequest
from training_service.client.requests import INSTANCES_PARAMETER


def words_of(request: TrainRequest, project: str) -> tuple[list[str], list[str]]:
    """Return the words that follow `trainctl` in the command that submits the request, and what they lack.

    The second list names the parts of the request that no option of the command can express. The command
    submits to `project` or, if that is empty, to the caller's default project.
    """
    job, program = request.metadata, request.program
    words = ["run", "--tree", program.tree] if request.HasField("program") else ["submit", job.algorithm]
    words += [*_given("--dataset", job.dataset_id), *_given("--version", job.train_data_version_hash)]
    words += [*_given("--name", job.name), *_given("--model", job.output_model_name)]
    if request.HasField("program"):
        words += _given("--instances", job.parameters[INSTANCES_PARAMETER])
        words += [*_given("--framework", program.framework), *_given("--code-version", program.version)]
        words += _pairs("--env", program.environment)
        words += _given("--requirements", program.requirements)
        words += _given("--environment", program.python_environment)
        words += _given("--image", program.image)
    else:
        words += _pairs("-p", job.parameters)
    words += _each("--tag", request.tags)
    words += [*_given("--queue", request.queue), *_given("--priority", request.priority)]
    words += [*_span(request, "expected", "--expected"), *_given("--flavor", request.flavor)]
    retry = request.retry_policy
    if retry.HasField("max_attempts"):
        words += ["--max-attempts", str(retry.max_attempts)]
    words += _each("--retry-on", retry.retry_on)
    words += [*_span(retry, "backoff", "--backoff"), *_span(retry, "max_backoff", "--max-backoff")]
    for state in ("queue", "start", "run", "progress"):
        words += _span(request.deadlines, state, f"--{state}-deadline")
    words += _given("--on-nonfinite", request.number_policy.on_nonfinite)
    words += _each("--nonfinite-metric", request.number_policy.metrics)
    words += _pod_words(request.pod_options)
    words += _given("--project", project)
    lacking = [
        f"toleration_seconds of {each.key or 'every taint'}"
        for each in request.pod_options.tolerations
        if each.HasField("toleration_seconds")
    ]
    if request.HasField("program"):
        if program.HasField("changes"):
            lacking.append("the record of uncommitted changes")
        words += _command_words(program.command)
        if program.command[:1] and program.command[0].endswith(".py"):
            lacking.append(f"a command {program.command[0]}, since trainctl runs Python files with python")
    return words, lacking


def _command_words(command: Sequence[str]) -> list[str]:
    """Return the command as arguments of `trainctl run`.

    `trainctl run` drops a `--` before the command's first word, and a `--` right after this word. So put a
    `--` before the command. If the command's second word is `--`, give this word twice.
    """
    first, *arguments = command or [""]
    return ["--", first, *(["--"] if arguments[:1] == ["--"] else []), *arguments]


def joined(words: Iterable[str]) -> str:
    """Return the words as a line for a shell.

    Characters that are not printable are escaped as in bash.
    """
    return " ".join(shlex.quote(word) if word.isprintable() else _escaped(word) for word in words)


def _escaped(word: str) -> str:
    parts = (
        f"\\{c}" if c in "\\'" else c if c.isprintable() else "".join(f"\\x{byte:02x}" for byte in c.encode())
        for c in word
    )
    return f"$'{''.join(parts)}'"


def _pod_words(options: PodOptions) -> Iterator[str]:
    yield from _pairs("--resource", options.resources)
    if options.nproc_per_node:
        yield from ("--nproc-per-node", str(options.nproc_per_node))
    yield from _pairs("--node-selector", options.node_selector)
    yield from _each("--toleration", map(_toleration, options.tolerations))
    yield from _given("--priority-class", options.priority_class)
    yield from _pairs("--label", options.labels)
    yield from _pairs("--annotation", options.annotations)
    yield from _given("--near", options.placement.near)
    yield from _given("--apart", options.placement.apart)
    if options.placement.strict:
        yield "--strict-placement"


def _toleration(toleration: Toleration) -> str:
    value = "" if toleration.operator == "Exists" else f"={toleration.value}"
    return f"{toleration.key}{value}" + (f":{toleration.effect}" if toleration.effect else "")


def _given(option: str, value: str) -> list[str]:
    return [option, value] if value else []


def _each(option: str, values: Iterable[str]) -> Iterator[str]:
    for value in values:
        yield from (option, value)


def _pairs(option: str, values: Mapping[str, str]) -> Iterator[str]:
    yield from _each(option, (f"{key}={value}" for key, value in sorted(values.items())))


def _span(message: Message, field: str, option: str) -> list[str]:
    if not message.HasField(field):
        return []
    span: Duration = getattr(message, field)
    seconds = f"{span.ToTimedelta().total_seconds():.6f}".rstrip("0").rstrip(".")
    return [option, f"{seconds}s"]
