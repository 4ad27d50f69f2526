"""The built-in algorithms and datasets are configuration only."""

import re
from pathlib import Path

import pytest

from job_tracker.catalog import Dataset
from tests.support.catalog import SETTINGS, algorithm_of
from training_service.settings import Settings, settings_model
from training_service.settings.service import StorageSettings
from training_service.settings.shipped import default_datasets

ROOT = Path(__file__).parents[3]
KIT = "trainer_kit"
SAMPLES = {init.parent.name for init in (ROOT / "trainer_images").glob("*/__init__.py")} - {KIT}
NAMES = {
    *SAMPLES,
    *(sample.replace("_", "-") for sample in SAMPLES),
    *settings_model()().algorithms,
    *(default_datasets("/storage").keys() - {"*"}),
}
CLIENT = ROOT / "training_service" / "client"
# `trainctl plan transformer` says which example has its layouts, and which measures the network.
PLANNER = {
    *(CLIENT / "planning").glob("*.py"),
    CLIENT / "cli" / "commands" / "plan_transformer.py",
    CLIENT / "cli" / "render" / "plans.py",
}
SOURCES = sorted(
    source
    for package in ("job_tracker", "training_service")
    for source in (ROOT / package).rglob("*")
    if source.suffix in (".py", ".pyi") and source not in PLANNER
)


def test_the_code_does_not_name_a_built_in_algorithm() -> None:
    assert {"intent_classification", "intent-classification", "language_model", "dialog"} <= NAMES
    assert len(SOURCES) > 100
    sample = re.compile(rf"\b({'|'.join(NAMES)})\b")
    found = {
        f"{source.relative_to(ROOT)}: {match[0]}"
        for source in SOURCES
        for match in sample.finditer(source.read_text(encoding="utf-8"))
    }
    assert found == set()


@pytest.mark.parametrize(
    ("storage", "root"),
    [
        (StorageSettings(uri="s3://bucket/"), "s3://bucket"),
        (StorageSettings(data_dir=Path("/var/lib/x")), "/var/lib/x/storage"),
    ],
)
def test_built_in_datasets_are_in_the_storage(storage: StorageSettings, root: str) -> None:
    datasets = Settings(storage=storage).datasets
    assert datasets["*"].folder("7", "v1") == f"{root}/versionedDatasets/7/v1"
    assert datasets["*"].files == ("examples.csv", "labels.csv")
    assert datasets["dialog"].folder("dialog", "v2") == f"{root}/versionedDatasets/dialog/v2"
    assert datasets["dialog"].files == ("train.txt", "validation.txt")


MINE = Dataset(uri="/data/{dataset_id}/{version}")
OWN = algorithm_of(process={"command": ["train"]})


def test_configured_entries_add_to_the_built_in_ones() -> None:
    made = SETTINGS(datasets={"mine": MINE, "*": MINE}, algorithms={"own": OWN, "language-model": OWN})
    assert made.datasets.keys() == {"*", "dialog", "digit-images", "mine"}
    assert made.datasets["*"] == MINE
    assert made.algorithms.keys() == {"intent-classification", "language-model", "network-check", "own"}
    assert made.algorithms["language-model"] == OWN


def test_configured_entries_replace_the_built_in_ones_if_they_say_so() -> None:
    made = SETTINGS(catalog={"replace_shipped": True}, datasets={"mine": MINE})
    assert made.datasets == {"mine": MINE}
    assert made.algorithms.keys() == {"intent-classification", "language-model", "network-check"}
    assert SETTINGS(catalog={"replace_shipped": True}, algorithms={"own": OWN}).algorithms == {"own": OWN}
