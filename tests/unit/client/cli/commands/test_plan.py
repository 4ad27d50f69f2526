"""trainctl plan: sizes, errors, output, and the planners of other packages."""

import json
import sys
from importlib.metadata import EntryPoints
from pathlib import Path

import pytest

from tests.support.trainctl import Trainctl
from training_service.client.cli.commands import plan
from training_service.client.cli.commands.plan import shown
from training_service.client.cli.commands.quantities import quantity

MODEL = ("--layers", "24", "--heads", "16", "--width", "2048", "--sequence", "1024", "--batch", "64")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16Gi", 16 << 30),
        ("80G", 80e9),
        ("512Mi", 512 << 20),
        ("1.5GiB", 1.5 * (1 << 30)),
        ("7", 7),
        ("2T", 2e12),
        ("3e14", 3e14),
    ],
)
def test_sizes_are_parsed(text: str, size: float) -> None:
    assert quantity(text, "--device-memory") == size


@pytest.mark.parametrize(
    "text", ["", "Gi", "16 Gi", "-1G", "0", "16X", "a", "1e999", "9" * 60, "0e5", "nan", "inf"]
)
def test_an_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size; write for example 16Gi"):
        quantity(text, "--device-memory")


def test_sizes_are_formatted() -> None:
    assert [shown(size) for size in (16 << 30, 1.5 * (1 << 20), 2048, 7)] == [
        "16 GiB",
        "1.5 MiB",
        "2 KiB",
        "7 B",
    ]


def test_choices_that_fit_are_printed_with_their_parameters(trainctl: Trainctl) -> None:
    result = trainctl("--json", "plan", "-n", "8", "--device-memory", "16Gi", *MODEL)
    assert result.exit_code == 0
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert rows
    assert all(row["memory_bytes"] < 16 << 30 for row in rows)
    assert rows[0]["parameters"]["STRATEGY"] in ("ddp", "zero1", "zero2", "shard_grad_op", "zero3")
    plain = trainctl("plan", "-n", "8", "--device-memory", "16Gi", *MODEL)
    assert plain.stdout.splitlines()[0].startswith("STRATEGY=")


def test_if_nothing_fits_the_smallest_choice_is_printed(trainctl: Trainctl) -> None:
    result = trainctl("plan", "-n", "1", "--device-memory", "256Mi", *MODEL)
    assert result.exit_code == 1
    assert "nothing fits on 1 devices of 256Mi; the smallest choice needs" in result.stderr
    assert "OFFLOAD=layers" in result.stderr


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--width", "30"), "WIDTH 30 is not a multiple of HEADS 4"),
        (("--device-memory", "much"), "'much' is not a size"),
        (("--precision", "fp8"), "fp8"),
        (("-n", "7", "--batch", "1"), "no layout of this model is valid on 7 devices, with any memory"),
    ],
)
def test_invalid_options_are_refused_with_the_reason(
    trainctl: Trainctl, options: tuple[str, ...], complaint: str
) -> None:
    result = trainctl("plan", "-n", "2", "--device-memory", "1Gi", *options)
    assert result.exit_code == 2
    assert complaint in result.stderr


MINE = """
from dataclasses import dataclass

@dataclass
class Choice:
    memory_bytes: float
    parameters = {"SHARDS": "2"}
    bytes_sent, bubble, recomputed, slowdown = 7.0, 0.0, 0.0, 1.0

def plan(instances, device_memory, *, tables: int = 3):
    if tables > 9:
        raise ValueError(f"{tables} tables are too many")
    choice = Choice(tables * 1024.0)
    return ([choice] if choice.memory_bytes <= device_memory else []), choice
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two packages with a planner each. The second planner lacks a library."""
    for name, code in {"mine": MINE, "broken": "import a_library_that_is_missing"}.items():
        metadata = tmp_path / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[trainctl.planners]\n{name} = {name}_planner:plan\n")
        (tmp_path / f"{name}_planner.py").write_text(code)
        monkeypatch.delitem(sys.modules, f"{name}_planner", raising=False)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("packages")
def test_a_package_adds_a_planner_with_options(trainctl: Trainctl) -> None:
    answer = trainctl("plan", "mine", "-n", "2", "--device-memory", "1Mi", "--tables", "4", "--json")
    assert json.loads(answer.stdout) == {
        "parameters": {"SHARDS": "2"},
        "memory_bytes": 4096.0,
        "bytes_sent": 7.0,
        "bubble": 0.0,
        "recomputed": 0.0,
        "slowdown": 1.0,
    }
    assert "--tables" in trainctl("plan", "mine", "--help").stdout
    refused = trainctl("plan", "mine", "-n", "2", "--device-memory", "1Mi", "--tables", "10")
    assert (refused.exit_code, "10 tables are too many" in refused.stderr) == (2, True)
    little = trainctl("plan", "mine", "-n", "2", "--device-memory", "1Ki")
    assert little.exit_code == 1
    assert (
        "nothing fits on 2 devices of 1Ki; the smallest choice needs 3 KiB on each device: SHARDS=2"
        in little.stderr
    )


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ("-n", "2"),
            "Invalid value: the first argument is one of broken, language-model, mine, transformer",
        ),
        (("other", "-n", "2"), "no planner for 'other'; the first argument is one of broken, "),
    ],
)
def test_one_of_several_planners_must_be_named(
    trainctl: Trainctl, arguments: tuple[str, ...], complaint: str
) -> None:
    answer = trainctl("plan", *arguments)
    assert (answer.exit_code, complaint in answer.stderr) == (2, True)


@pytest.mark.usefixtures("packages")
def test_a_planner_that_cannot_be_loaded_is_reported(trainctl: Trainctl) -> None:
    answer = trainctl("plan", "broken", "-n", "2", "--device-memory", "1Gi")
    assert answer.exit_code == 1
    assert (
        "the planner of broken cannot be loaded: No module named 'a_library_that_is_missing'" in answer.stderr
    )


def test_without_a_planner_the_command_suggests_a_package(
    trainctl: Trainctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "entry_points", lambda group: EntryPoints())
    answer = trainctl("plan", "-n", "8", "--device-memory", "16Gi", *MODEL)
    assert answer.exit_code == 1
    assert "pip install ./trainer_images" in answer.stderr
