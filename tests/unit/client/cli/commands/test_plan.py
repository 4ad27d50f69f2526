"""trainctl plan: sizes, refusals, what it prints."""

import json

import pytest

from tests.support.trainctl import Trainctl
from training_service.client.cli.commands.plan import shown, size_of

MODEL = ("--layers", "24", "--heads", "16", "--width", "2048", "--sequence", "1024", "--batch", "64")


@pytest.mark.parametrize(
    ("text", "size"),
    [("16Gi", 16 << 30), ("80G", 80e9), ("512Mi", 512 << 20), ("1.5GiB", 1.5 * (1 << 30)), ("7", 7)],
)
def test_sizes_are_read(text: str, size: float) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["", "Gi", "16 Gi", "-1G", "0", "16T", "a"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no size; write it as 16Gi"):
        size_of(text)


def test_sizes_are_shown_for_people() -> None:
    assert [shown(size) for size in (16 << 30, 1.5 * (1 << 20), 2048, 7)] == [
        "16 GiB",
        "1.5 MiB",
        "2 KiB",
        "7 B",
    ]


def test_what_fits_is_printed_with_the_parameters_to_submit(trainctl: Trainctl) -> None:
    told = trainctl("--json", "plan", "-n", "8", "-m", "16Gi", *MODEL)
    assert told.exit_code == 0
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    assert rows
    assert all(row["memory_bytes"] < 16 << 30 for row in rows)
    assert rows[0]["parameters"]["STRATEGY"] in ("ddp", "zero1", "zero2", "zero3")
    plain = trainctl("plan", "-n", "8", "-m", "16Gi", *MODEL)
    assert plain.stdout.splitlines()[0].startswith("STRATEGY=")


def test_where_nothing_fits_it_says_what_the_least_would_be(trainctl: Trainctl) -> None:
    told = trainctl("plan", "-n", "1", "-m", "1Gi", *MODEL)
    assert told.exit_code == 1
    assert "nothing fits 1 devices of 1Gi; the least needs" in told.stderr
    assert "CHECKPOINTING=full" in told.stderr


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--width", "30"), "WIDTH 30 is no multiple of HEADS 4"),
        (("-m", "much"), "'much' is no size"),
        (("--precision", "fp8"), "fp8"),
    ],
)
def test_what_cannot_be_is_refused_with_the_rule(
    trainctl: Trainctl, options: tuple[str, ...], complaint: str
) -> None:
    told = trainctl("plan", "-n", "2", "-m", "1Gi", *options)
    assert told.exit_code == 2
    assert complaint in told.stderr
