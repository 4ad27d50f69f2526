"""Commands with placeholders for parameters."""

from collections.abc import Mapping

import pytest

from job_tracker.catalog import Parameter
from job_tracker.catalog.templates import filled, places, problem
from job_tracker.domain.errors import InvalidField
from tests.support.catalog import algorithm_of

PARAMETERS = {
    "LR": Parameter(type="float"),
    "NAME": Parameter(),
    "AMP": Parameter(type="bool"),
}
TRAIN = ("python", "train.py")


def fill(*arguments: str, **values: str) -> tuple[str, ...]:
    command = (*TRAIN, *arguments)
    assert problem(command, PARAMETERS) is None
    return filled(command, PARAMETERS, values)[2:]


def test_a_value_is_one_argument_with_any_content() -> None:
    assert fill("--lr", "{LR}", "--name={NAME}", LR="0.1", NAME="a b; rm -rf / $(x) {LR}") == (
        *("--lr", "0.1", "--name=a b; rm -rf / $(x) {LR}"),
    )


def test_the_dataset_has_a_place() -> None:
    assert fill("--data", "{TRAINING_DATA_URI}", TRAINING_DATA_URI="s3://b/x") == ("--data", "s3://b/x")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--lr", "{LR}", "--epochs", "3"), ("--epochs", "3")),
        (("--lr={LR}", "--fast"), ("--fast",)),
        (("{NAME}", "--fast"), ("--fast",)),
        (("in.txt", "{NAME}"), ("in.txt",)),
        (("--", "{NAME}"), ("--",)),
        (("--name", "{NAME}", "{LR}"), ()),
        (("--verbose", "x{LR}"), ("--verbose",)),
    ],
)
def test_without_a_value_the_argument_and_its_option_are_left_out(
    arguments: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert fill(*arguments) == expected


def test_braces_in_code_stay_as_they_are() -> None:
    command = ("python", "-c", "n = 3; print(f'{n} {{n}} {n:02}')", "--lr", "{LR}")
    assert problem(command, PARAMETERS) is None
    assert filled(command, PARAMETERS, {"LR": "1"}) == (*command[:-1], "1")
    assert places(command) == {"LR"}


def test_the_program_is_never_left_out() -> None:
    assert filled(("-odd", "{NAME}"), PARAMETERS, {}) == ("-odd",)


@pytest.mark.parametrize(("value", "expected"), [("true", ("--amp",)), ("1", ("--amp",)), ("false", ())])
def test_a_flag_is_there_if_its_parameter_is_true(value: str, expected: tuple[str, ...]) -> None:
    assert fill("{AMP?--amp}", AMP=value) == expected
    assert fill("{AMP?--amp}") == ()


def test_other_braces_stay_as_they_are() -> None:
    texts = (
        "{{LR}}",
        "${LR}",
        "{}",
        '{"a": {"b": 1}}',
        "{1}",
        "{{ LR }}",
        "${{LR}}",
        "{ LR }",
        "${AMP?x}",
        "{OTHER?x y}z",
    )
    assert fill(*texts, LR="1") == ("{LR}", *texts[1:6], "${LR}", *texts[7:])
    assert places(texts) == frozenset()
    assert fill("{{LR}}") == ("{LR}",)


@pytest.mark.parametrize("value", ["--output=/x", "-x", "-"])
def test_a_text_cannot_pass_for_an_option(value: str) -> None:
    with pytest.raises(InvalidField, match=r"^parameters.NAME: .* it begins with -"):
        fill("--name", "{NAME}", NAME=value)
    assert fill("--name={NAME}", NAME=value) == (f"--name={value}",)


def test_a_number_may_be_negative() -> None:
    assert fill("--lr", "{LR}", LR="-0.5") == ("--lr", "-0.5")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ("python", "{RATE}"),
            "argument 1, '{RATE}': 'RATE' is not a parameter of the algorithm; allowed: AMP",
        ),
        (("{NAME}",), "the program itself"),
        (("sh", "-c", "train {LR}"), "runs as code"),
        (("/bin/bash", "-l", "-ec", "train {LR}"), "runs as code"),
        (("env", "sh", "-c", "{LR}"), "runs as code"),
        (("python3.12", "-c", "print({LR})"), "runs as code"),
        (("perl", "-e", "{NAME}"), "runs as code"),
        (("bash", "-euo", "pipefail", "-c", "train {LR}"), "runs as code"),
        (("bash", "-o", "pipefail", "-c", "train {LR}"), "runs as code"),
        (("bash", "-c", "--", "train {LR}"), "runs as code"),
        (("bash", "-cx", "train {LR}"), "runs as code"),
        (("bash", "-c", "-x", "train {LR}"), "runs as code"),
        (("env", "-S", "bash -c {LR}"), "runs as code"),
        (("/usr/bin/env", "-Sbash -c {LR}"), "runs as code"),
        (("env", "-iS", "bash -c {LR}"), "runs as code"),
        (("env", "--split-string=bash -c {LR}"), "runs as code"),
        (("env", "-u", "HOME", "-S", "bash -c", "{LR}"), "runs as code"),
        (("python", "-W", "ignore", "-c", "print({LR})"), "runs as code"),
        (("python", "-cprint({LR})"), "runs as code"),
        (("python", "-O", "-c", "print({LR})"), "runs as code"),
        (("node", "--eval=f({LR})"), "runs as code"),
        (("node", "-r", "module", "-e", "f({LR})"), "runs as code"),
        (("Rscript", "-e", "f({LR})"), "runs as code"),
        (("train", "{LR?--lr}"), "of type bool"),
        (("train", "{AMP?--lr={LR}}"), "{AMP?TEXT} has to be a whole argument, with no braces in TEXT"),
        (("train", "--options={AMP?amp}"), "argument 1, '--options={AMP?amp}': {AMP?TEXT} has to be a whole"),
        (("train", "{AMP?}"), "has to be a whole argument"),
    ],
)
def test_a_bad_template_is_refused(command: tuple[str, ...], message: str) -> None:
    assert message in (problem(command, PARAMETERS) or "")


@pytest.mark.parametrize(
    "command",
    [
        ("train", "-c", "{LR}"),
        ("sh", "-c", 'exec train "$1"', "sh", "{LR}"),
        ("python", "train.py", "-c", "{LR}"),
        ("python", "-u", "-W", "ignore", "train.py", "-c", "{LR}"),
        ("python", "-m", "train", "-c", "{LR}"),
        ("python", "-O", "train.py", "-c", "{LR}"),
        ("bash", "-euo", "pipefail", "-c", 'exec train "$1"', "bash", "{LR}"),
        ("bash", "train.sh", "-c{LR}"),
        ("env", "MODE=fast", "python", "train.py", "-S", "{LR}"),
        ("env", "-u", "HOME", "train", "{LR}"),
        ("sh", "-x", "train.sh", "--command", "{LR}"),
    ],
)
def test_arguments_of_a_program_are_not_code(command: tuple[str, ...]) -> None:
    assert problem(command, PARAMETERS) is None


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"process": {"command": ["train", "{X}"]}}, "process.command: argument 1"),
        (
            {
                "framework": "tensorflow",
                "process": {"command": ["train"]},
                "roles": {"ps": {"command": ["serve", "{X}"]}},
            },
            "roles.ps.command: argument 1",
        ),
    ],
)
def test_an_algorithm_with_a_bad_template_is_refused_with_the_field(
    values: Mapping[str, object], field: str
) -> None:
    with pytest.raises(ValueError, match=field):
        algorithm_of(**values)
