"""A checkpoint written by another job: loading it runs no code."""

import hashlib
import io
import json
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from trainer_kit.checkpoints.pytorch.packing import Packing
from trainer_kit.errors import UntrustedTypeError

from tests.support.trainers.checkpoint_groups import Job, end_of
from tests.support.trainers.checkpoints import ALONE_IS_FINE, Start, manifest_of, parts_of
from tests.support.trainers.launcher import Launcher

pytestmark = ALONE_IS_FINE
STEP = 2
REFUSED = r"object of posix\.mkdir is not loaded.*CHECKPOINT_WEIGHTS_ONLY=false"


class Trap:
    """Creates a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def __reduce__(self) -> Any:
        return os.mkdir, (self._folder,)


@pytest.fixture
def sprung(tmp_path: Path) -> Path:
    """The folder that a loaded trap creates."""
    return tmp_path / "sprung"


@pytest.fixture
def saved(start: Start) -> None:
    with start.attempt() as training:
        training.run.values["best"] = 0.5
        training.steps(STEP)


def torch_saved(value: object, **options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


def in_the_old_format(value: object) -> bytes:
    return torch_saved(value, _use_new_zipfile_serialization=False)


def within_bytes(value: object) -> bytes:
    """Serialize twice, as the kit does for packed values."""
    return torch_saved(torch_saved(value))


def metadata_of(folder: Path) -> Metadata:
    metadata = pickle.loads((parts_of(folder, STEP) / ".metadata").read_bytes())
    assert isinstance(metadata, Metadata)
    return metadata


def put_metadata(folder: Path, content: bytes) -> None:
    (parts_of(folder, STEP) / ".metadata").write_bytes(content)
    correct_the_manifest(folder)


def put_value(folder: Path, name: str, content: bytes) -> None:
    """Replace the stored value of this name."""
    metadata = metadata_of(folder)
    [index] = [index for index in metadata.storage_data if index.fqn == name]
    found = metadata.storage_data[index]
    part = parts_of(folder, STEP) / found.relative_path
    place = replace(found, offset=part.stat().st_size, length=len(content))
    metadata.storage_data[index] = place
    part.write_bytes(part.read_bytes() + content)
    put_metadata(folder, pickle.dumps(metadata))


def correct_the_manifest(folder: Path) -> None:
    path = manifest_of(folder, STEP)
    manifest = json.loads(path.read_text())
    for name in manifest["parts"]:
        content = (parts_of(folder, STEP) / name).read_bytes()
        manifest["parts"][name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    path.write_text(json.dumps(manifest))


PLACES = ["others", "process-0", "optimizer.param_groups.weight.lr", "model.weight"]
FORMS = [torch_saved, in_the_old_format, within_bytes, pickle.dumps]
PAIRS = [
    (place, form)
    for place in PLACES
    for form in FORMS
    # In other places, bytes are plain values.
    if form is not within_bytes or place in ("others", "process-0")
]


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(("place", "form"), PAIRS)
def test_a_trap_among_the_values_is_not_sprung(
    start: Start, folder: Path, sprung: Path, place: str, form: Callable[[object], bytes]
) -> None:
    put_value(folder, place, form({"a": Trap(sprung)}))
    refusal = UntrustedTypeError if form is not pickle.dumps else Exception
    with pytest.raises(refusal) as refused, start.attempt(2):
        pytest.fail("it must not resume from this checkpoint")
    if form is not pickle.dumps:
        refused.match(REFUSED)
    assert not sprung.exists()


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize("place", PLACES[:3])
def test_an_algorithm_may_trust_its_checkpoints(start: Start, folder: Path, sprung: Path, place: str) -> None:
    form = torch_saved if place.startswith("optimizer") else within_bytes
    put_value(folder, place, form({"a": Trap(sprung)}))
    # The rest of the checkpoint may not match the training.
    with suppress(Exception), start.attempt(2, CHECKPOINT_WEIGHTS_ONLY="false"):
        pass
    assert sprung.exists()


@pytest.mark.usefixtures("saved")
def test_a_trap_in_the_list_of_tensors_is_not_sprung(start: Start, folder: Path, sprung: Path) -> None:
    hostile = metadata_of(folder)
    hostile.planner_data = Trap(sprung)
    put_metadata(folder, pickle.dumps(hostile))
    for trust in ("true", "false"):
        with (
            pytest.raises(UntrustedTypeError, match=r"its list of tensors names posix\.mkdir"),
            start.attempt(2, CHECKPOINT_WEIGHTS_ONLY=trust),
        ):
            pytest.fail("it must not resume from this checkpoint")
    assert not sprung.exists()
    metadata_of(folder)
    assert sprung.exists(), "the trap works"


@pytest.mark.usefixtures("saved")
def test_a_dotted_name_below_an_allowed_one_is_refused(start: Start, folder: Path) -> None:
    put_metadata(folder, pickle.dumps(Metadata.__init__))
    with pytest.raises(UntrustedTypeError, match=r"metadata\.Metadata\.__init__"), start.attempt(2):
        pytest.fail("it must not resume from this checkpoint")


@pytest.mark.usefixtures("saved")
def test_a_trap_in_place_of_the_manifest_is_not_sprung(
    start: Start, folder: Path, sprung: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manifest_of(folder, STEP).write_bytes(pickle.dumps(Trap(sprung)))
    with start.attempt(2) as resumed:
        assert resumed.run.steps == 1
    assert "which is damaged: its manifest is damaged" in caplog.text
    assert not sprung.exists()


def point_elsewhere(metadata: Metadata) -> Metadata:
    [first, *_] = metadata.storage_data
    place = replace(metadata.storage_data[first], relative_path="../../../etc/passwd")
    metadata.storage_data[first] = place
    return metadata


ODD = [
    (lambda _metadata: {"a": 1}, "is a dict"),
    (lambda metadata: replace(metadata, storage_data=None), "is malformed"),
    (lambda metadata: replace(metadata, storage_data={MetadataIndex("a"): 1}), "is malformed"),
    (point_elsewhere, "names a file outside the manifest: ../../../etc/passwd"),
]


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(("change", "reason"), ODD)
def test_a_malformed_list_of_tensors_is_damage(
    start: Start,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[Metadata], object],
    reason: str,
) -> None:
    put_metadata(folder, pickle.dumps(change(metadata_of(folder))))
    with start.attempt(2) as resumed:
        assert resumed.run.steps == 1
    assert f"which is damaged: its list of tensors {reason}" in caplog.text


def test_a_trap_for_one_rank_ends_all_ranks_with_the_reason(
    launcher: Launcher, folder: Path, sprung: Path
) -> None:
    job = Job(launcher, str(folder))
    job.run(2, CHECKPOINT_EVERY_STEPS=str(STEP), CHECKPOINT_KEEP="100")
    for manifest in folder.glob("*.json"):
        if manifest != manifest_of(folder, STEP):
            manifest.unlink()
    put_value(folder, "process-1", within_bytes(Trap(sprung)))
    for end in [end_of(process) for process in job.start(2)]:
        assert end.code == 1
        assert end.stderr.startswith("error: a checkpoint with an object of posix.mkdir is not loaded")
    assert not sprung.exists()


class Own:
    """A type of the training code."""


def test_an_object_is_refused_when_saving_until_its_type_is_allowed(
    start: Start,
) -> None:
    refused = pytest.raises(
        UntrustedTypeError, match=r"object of \S+\.Own is not loaded.*safe_globals\(\[\S+\.Own\]"
    )
    with refused, start.attempt() as training:
        training.run.values["own"] = Own()
        training.steps(1)
    with torch.serialization.safe_globals([Own]):
        with start.attempt(2) as allowed:
            allowed.run.values["own"] = Own()
            allowed.steps(1)
        with start.attempt(3) as resumed:
            assert isinstance(resumed.run.values["own"], Own)
    with start.attempt(4, CHECKPOINT_WEIGHTS_ONLY="false") as trusting:
        assert isinstance(trusting.run.values["own"], Own)
    with pytest.raises(UntrustedTypeError, match=r"\.Own"), start.attempt(5, CHECKPOINT_WEIGHTS_ONLY="true"):
        pytest.fail("it is no longer allowed")


def test_plain_values_and_arrays_are_restored_unchanged(start: Start) -> None:
    values = {
        "loss": np.float32(0.5),
        "losses": np.arange(6.0).reshape(2, 3)[:, ::2],
        "names": np.array(["a", "bc"]),
        "seen": {1, 2},
        "nothing": b"",
        "nested": [{"a": (1, None, float("inf"), 10**40)}],
        "generator": np.random.default_rng(1).bit_generator.state,
    }
    with start.attempt() as training:
        training.run.values.update(values)
        training.steps(1)
    with start.attempt(2) as resumed:
        found = resumed.run.values
        assert found.keys() == values.keys()
        for name, value in values.items():
            assert type(found[name]) is type(value)
            np.testing.assert_equal(found[name], value)


SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("LambdaLR", {"lr_lambda": lambda _step: 1.0}),
    ("StepLR", {"step_size": 1}),
    ("MultiStepLR", {"milestones": [1, 2]}),
    ("LinearLR", {}),
    ("CosineAnnealingLR", {"T_max": 3}),
    ("CosineAnnealingWarmRestarts", {"T_0": 2}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 1}),
    ("OneCycleLR", {"max_lr": 0.1, "total_steps": 9}),
    ("ReduceLROnPlateau", {}),
]


@pytest.mark.parametrize(
    ("name", "options"), SCHEDULES, ids=lambda each: each if isinstance(each, str) else ""
)
def test_the_state_of_every_schedule_can_be_saved(name: str, options: dict[str, Any]) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1, momentum=0.9)
    state = getattr(torch.optim.lr_scheduler, name)(optimizer, **options).state_dict()
    packing = Packing(weights_only=True)
    assert packing.unpack(packing.pack(state)) == state


def test_types_allowed_by_the_training_code_stay_allowed() -> None:
    with torch.serialization.safe_globals([np.ndarray]):
        Packing(weights_only=True).pack(np.ones(2))
        assert np.ndarray in torch.serialization.get_safe_globals()
    assert np.dtype not in torch.serialization.get_safe_globals()
