"""Stages the folder `dataset` in every way. Returns the hashes of the files on each rank, and the metrics
that it reports.
"""

import hashlib
import logging
from pathlib import Path
from unittest import mock

from trainer_kit.errors import TrainingError
from trainer_kit.group import Group
from trainer_kit.progress import Reporter
from trainer_kit.report_sinks import NullSink
from trainer_kit.staging import pieces, staged
from trainer_kit.staging.settings import Settings
from trainer_kit.staging.stage import _fill as fill
from trainer_kit.staging.ways import Way

SIZE = 700
"""The number of bytes of the largest piece."""
WAYS = [way for way in Way if way is not Way.NONE]


class Reports(Reporter):
    def __init__(self) -> None:
        super().__init__(NullSink())
        self.metrics: dict[str, float] = {}

    def report(self, **metrics: float) -> None:  # type: ignore[override]
        self.metrics |= metrics


def main(group: Group) -> dict[str, object]:
    logging.disable()
    with mock.patch.multiple(pieces, LEAST=SIZE // 3, PIECE=SIZE):
        return {
            **{way: once(group, Settings(way)) for way in WAYS},
            "kept": [once(group, Settings(Way.SHARDS, Path(f"kept-{group.rank}"), 10_000)) for _ in range(2)],
            "differing": differing(group),
        }


def once(group: Group, settings: Settings) -> dict[str, object]:
    """Stage once. Return the hashes of the staged files, and the reported metrics."""
    reports = Reports()
    with staged(group, "dataset", reports, settings) as folder:
        found = {
            path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(Path(folder).rglob("*"))
            if path.is_file()
        }
    return {"files": found, **reports.metrics}


def differing(group: Group) -> str:
    """Stage with a file that arrives changed at rank 1, and return the error; "" if there is none."""

    def damaged(folder: Path, *rest: object) -> object:
        real = pieces.write
        with mock.patch.object(
            pieces, "write", lambda to, piece, content: real(to, piece, content.tobytes()[::-1])
        ):
            return fill(folder, *rest)  # type: ignore[arg-type]

    damage = mock.patch("trainer_kit.staging.stage._fill", damaged if group.rank == 1 else fill)
    try:
        with damage, staged(group, "dataset", Reports(), Settings(Way.RELAY)):
            return ""
    except TrainingError as error:
        return str(error)
