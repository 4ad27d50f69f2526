"""Small but real trainings of every framework, the same for every engine."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from intent_classification import questions
from intent_classification.prepare_data import prepare

from tests.support.frameworks import python_of
from training_service._generated import training_service_pb2 as pb
from training_service.client import TrainingClient

ALGORITHMS = Path(__file__).parents[3] / "trainer_images" / "algorithms.toml"
DATASET = "1"
GOOD = 0.75
"""A test accuracy that only a trained model has: less than a quarter of the questions are in the largest of
the six classes.
"""


@dataclass(frozen=True)
class Case:
    """The request of one training run."""

    algorithm: str
    instances: int
    parameters: Mapping[str, str] = field(default_factory=dict)
    processes: int = 1
    others: int = 0
    """The number of additional instances with other roles."""

    def __str__(self) -> str:
        of_each = f" of {self.processes}" if self.processes > 1 else ""
        return f"{self.algorithm} on {self.instances}{of_each}"


CASES = (
    Case("pytorch", 2, processes=2),
    Case("pytorch-elastic", 3, {"MIN_INSTANCES": "3"}),  # otherwise, two begin if the third is late
    Case("tensorflow-workers", 2),
    Case("tensorflow-parameter-server", 2, {"EPOCHS": "2"}, others=1),  # two passes are enough
    Case("jax", 3),
    Case("horovod", 2, {"EPOCHS": "5"}),
    Case("mpi", 2, processes=2),
)


def prepare_questions(storage: Path) -> str:
    """Write the data of all trainings to storage, and return its version."""
    labelled = [(question.text, question.coarse) for question in questions.load()]
    return prepare(labelled, str(storage), DATASET).version


def make_environment(case: Case) -> None:
    """Make the Python environment of the case, which takes minutes on a busy machine."""
    process = tomllib.loads(ALGORITHMS.read_text())["algorithms"][case.algorithm]["process"]
    if environment := process.get("virtual_environment"):
        python_of(Path(environment).name)


def train(client: TrainingClient, case: Case, version: str) -> int:
    """Submit the training, and return the job's id."""
    options = pb.PodOptions(nproc_per_node=case.processes) if case.processes > 1 else None
    return client.submit(
        case.algorithm,
        DATASET,
        version,
        instances=case.instances,
        parameters={"CHECKPOINT_EVERY_STEPS": "20", **case.parameters},
        pod_options=options,
    )


def check(client: TrainingClient, case: Case, job: int) -> float:
    """Check that the job succeeded with a checkpoint and good accuracy. Return the test accuracy."""
    ended = client.status(job)
    text = "".join(piece.text for piece in client.logs(job, all_ranks=True))
    assert ended.status == pb.succeed, (ended.diagnosis, text)
    assert len(ended.ranks) == case.instances + case.others
    if not case.others:
        assert {rank.phase for rank in ended.ranks} == {pb.RANK_PHASE_SUCCEEDED}, ended.ranks
    assert ended.progress.epoch == ended.progress.total_epochs, (ended.progress, text)
    [accuracy] = re.findall(r"test accuracy (0\.\d+)", text)
    made = {artifact.name: artifact for artifact in client.artifacts(job).artifacts}
    assert "manifest.json" in made, made
    assert re.search(r"/attempt-\d+\.\d+\.\w+\.step-\d+$", made["checkpoint"].uri), made
    assert float(accuracy) > GOOD
    return float(accuracy)
