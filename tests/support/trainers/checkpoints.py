"""A training run small enough to run within a test, and a file system that fails on request."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
import torch
from fsspec.implementations.local import LocalFileSystem
from torch import nn
from trainer_kit import checkpoints
from trainer_kit.checkpoints.folder import CheckpointFolder
from trainer_kit.checkpoints.names import Checkpoint
from trainer_kit.group import Group

# The kit ignores this warning of PyTorch, but in tests a warning is an error.
ALONE_IS_FINE = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
ALONE = Group(0, 1, torch.device("cpu"))


class Training:
    """A model that learns a little in each step, in one process."""

    def __init__(self, run: checkpoints.Kept, model: nn.Linear, optimizer: torch.optim.Optimizer) -> None:
        self.run = run
        self.model = model
        self._optimizer = optimizer

    def steps(self, count: int) -> None:
        """Take this number of steps. After each step, wait until it is saved."""
        for _ in range(count):
            self._optimizer.zero_grad()
            torch.autograd.backward((self.model(torch.randn(4, 8)) - 1).square().mean())
            self._optimizer.step()
            self.run.step()
            self.run.wait()

    @property
    def weights(self) -> list[float]:
        """The weights of the model."""
        return [number for parameter in self.model.parameters() for number in parameter.flatten().tolist()]


class Start:
    """Starts trainings with an environment, as the service does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
        self._monkeypatch = monkeypatch
        self.uri = uri
        self.outputs = 4
        """The width of the model."""

    @contextmanager
    def attempt(self, attempt: int = 1, /, **settings: str) -> Iterator[Training]:
        """Run one attempt, which saves after each step by default."""
        defaults = {"CHECKPOINT_URI": self.uri, "JOB_ATTEMPT": str(attempt), "CHECKPOINT_EVERY_STEPS": "1"}
        defaults |= {"CHECKPOINT_EVERY_SECONDS": "100000"}  # on a busy machine, the default of 60 s may pass
        for name, value in {**defaults, **settings}.items():
            self._monkeypatch.setenv(name, value)
        model = nn.Linear(8, self.outputs)
        optimizer = torch.optim.AdamW(model.parameters())
        with checkpoints.kept(ALONE, model, optimizer) as run:
            yield Training(run, model, optimizer)

    @property
    def published(self) -> list[Checkpoint]:
        """The published checkpoints, newest first."""
        return list(CheckpointFolder(self.uri).look().published)

    @property
    def published_steps(self) -> list[int]:
        """The steps of the published checkpoints."""
        return [checkpoint.step for checkpoint in self.published]


class FaultyFileSystem(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A disk that can be taken away, made read-only, or filled up."""

    protocol: ClassVar[str] = "faulty"
    fault: ClassVar[str] = ""

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        if self.fault == "away":
            raise ConnectionError("no route to the storage")
        return super().ls(path, detail, **options)

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if self.fault == "away":
            raise ConnectionError("no route to the storage")
        if self.fault == "read-only" and mode != "rb":
            raise OSError(errno.EROFS, "Read-only file system", path)
        file = super()._open(path, mode, **options)
        return _FullFile(file) if self.fault == "full" and mode != "rb" else file


class _FullFile:
    """A file with room for a limited number of bytes."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._room = 1000

    def write(self, data: Any) -> int:
        self._room -= memoryview(data).nbytes
        if self._room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return int(self._file.write(data))

    def __enter__(self) -> "_FullFile":
        return self

    def __exit__(self, *reason: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)


def files_below(folder: Path) -> list[Path]:
    """Return the paths of all files in a folder and its subfolders, in order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def parts_of(folder: Path, step: int) -> Path:
    [parts] = folder.glob(f"*.step-{step:012}")
    return parts


def manifest_of(folder: Path, step: int) -> Path:
    [manifest] = folder.glob(f"*.step-{step:012}.json")
    return manifest
