"""Every kind of parallelism through the service: the model reaches the same loss as in one process.

The strategies that train here set every parameter of parallelism, and start groups of every shape. The
other strategies are compared in tests/unit/trainer_images/language_model/test_train.py.
"""

import json
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
from language_model import corpus
from language_model.prepare_data import prepare

from benchmarks.parallelism import STRATEGIES, metrics_of
from tests.support.trainctl import Trainctl
from tests.support.trainings import end_of
from training_service._generated import training_service_pb2 as pb
from training_service.client import InvalidRequest

if TYPE_CHECKING:
    from tests.support.server import Server
    from tests.support.trainers.forked_python import ForkedPython
else:
    Server = ForkedPython = Any

SMALL = {"LAYERS": "4", "WIDTH": "32", "CONTEXT": "32", "BATCH_SIZE": "16", "STEPS": "8"}
TOLERANCE = 1e-5
ASYNCHRONOUS_TOLERANCE = 0.05
OTHER_UPDATES = ("PipeDream", "averaging")
"""Strategies whose updates differ from the updates of one process on purpose."""
ALL = {
    **STRATEGIES,
    "parameter servers": (6, {"STRATEGY": "parameter_server", "SERVERS": "2", "STANDBY": "true"}),
    "averaging": (2, {"STRATEGY": "averaging"}),
    "all-reduce by hand, a star": (2, {"ALL_REDUCE": "star"}),
    "all-reduce by hand, a tree": (4, {"ALL_REDUCE": "tree"}),
    "all-reduce by hand, binary blocks": (4, {"ALL_REDUCE": "binary_blocks"}),
    "all-reduce by hand, rings of nodes": (4, {"ALL_REDUCE": "hierarchical_ring", "NODE_SIZE": "2"}),
    "all-reduce by hand, a ring": (2, {"ALL_REDUCE": "ring", "DATA_STAGING": "shards"}),
}
TRAINED = {
    "copies of the model": (
        "DDP, attention recomputed",
        "DDP, activations offloaded",
        "averaging",
        "all-reduce by hand, a ring",
    ),
    "parts of the model": (
        "layer by layer (L2L)",
        "PipeDream",
        "tensor, sequence, loss",
        "ZeRO-3 x tensor, sequence",
        "1F1B x ZeRO-1",
    ),
    "large groups": ("all-reduce by hand, rings of nodes", "parameter servers"),
}


def test_every_strategy_is_admitted(forked_python: ForkedPython, server: Server) -> None:
    (server.folder / "config.toml").write_text(
        f'[scheduling]\ncapacity = 8\n[process]\npath = "{forked_python.path}"\n'
    )
    version = prepare(corpus.FILE.path().read_bytes(), str(server.folder / "storage"), "dialog").version
    largest_first = sorted(ALL.values(), key=itemgetter(0), reverse=True)
    assert largest_first[0][0] == 8, "the first job takes the whole capacity, so that no other job starts"
    with server.start() as client:
        jobs = [
            client.submit(
                "language-model", "dialog", version, instances=ranks, parameters={**SMALL, **parameters}
            )
            for ranks, parameters in largest_first
        ]
        for job in reversed(jobs):
            client.cancel(job)


@pytest.mark.parametrize("kind", TRAINED)
def test_a_strategy_reaches_the_loss_of_one_process(
    kind: str, forked_python: ForkedPython, server: Server
) -> None:
    names = ("one process", *TRAINED[kind])
    (server.folder / "config.toml").write_text(
        f'[scheduling]\ncapacity = 8\n[process]\npath = "{forked_python.path}"\n'
    )
    prepared = prepare(corpus.FILE.path().read_bytes(), str(server.folder / "storage"), "dialog")
    with server.start() as client:
        jobs = {
            name: client.submit(
                "language-model",
                "dialog",
                prepared.version,
                instances=ranks,
                parameters={**SMALL, **parameters},
            )
            for name in names
            for ranks, parameters in [ALL[name]]
        }
        losses = {}
        for name, job in jobs.items():
            ended = end_of(client, job)
            log = "".join(piece.text for piece in client.logs(job, all_ranks=True))
            assert ended.status == pb.succeed, (name, ended.diagnosis, log)
            losses[name] = metrics_of(ended.model_uri)["loss"]
            if ALL[name][1].get("DATA_STAGING") == "shards":
                read = ended.progress.metrics["staging_read_bytes"]
                assert read == sum(file.stat().st_size for file in Path(prepared.uri).iterdir())
        expected = losses["one process"]
        others = {name: losses.pop(name) for name in OTHER_UPDATES if name in losses}
        assert losses == {name: pytest.approx(expected, abs=TOLERANCE) for name in losses}
        assert others == {name: pytest.approx(expected, rel=ASYNCHRONOUS_TOLERANCE) for name in others}


def test_the_passes_of_a_pipeline_are_drawn(forked_python: ForkedPython, server: Server) -> None:
    (server.folder / "config.toml").write_text(
        f'[scheduling]\ncapacity = 4\n[process]\npath = "{forked_python.path}"\n'
    )
    version = prepare(corpus.FILE.path().read_bytes(), str(server.folder / "storage"), "dialog").version
    parameters = {**SMALL, "PIPELINE": "4", "MICRO_BATCHES": "4", "SCHEDULE": "gpipe"}
    picture = server.folder / "timeline.svg"
    with server.start() as client:
        job = client.submit("language-model", "dialog", version, instances=4, parameters=parameters)
        ended = end_of(client, job)
        log = "".join(piece.text for piece in client.logs(job, all_ranks=True))
        assert ended.status == pb.succeed, (ended.diagnosis, log)
        trainctl = Trainctl(server.address)
        [line] = trainctl("plot", str(job), "--timeline", "--json").stdout.splitlines()
        drawn = trainctl("plot", str(job), "--timeline", "--output", str(picture))
    timeline = json.loads(line)
    passes = [(each["rank"], each["kind"], each["micro_batch"]) for each in timeline["passes"]]
    assert passes == [  # GPipe: all forward passes, then all backward passes
        (rank, kind, micro_batch)
        for rank in range(4)
        for kind in ("forward", "backward")
        for micro_batch in range(4)
    ]
    assert timeline["idle_formula"] == pytest.approx(3 / 7)
    assert timeline["idle"] == pytest.approx(3 / 7, abs=0.2)  # the machine may be busy
    assert (drawn.exit_code, drawn.stderr.splitlines()[0]) == (0, f"trainctl: wrote {picture}")
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_an_invalid_layout_is_refused_at_admission_with_its_numbers(server: Server) -> None:
    (server.folder / "config.toml").write_text("")
    version = prepare(corpus.FILE.path().read_bytes(), str(server.folder / "storage"), "dialog").version
    with server.start() as client:
        wrong = {**SMALL, "PIPELINE": "2", "TENSOR": "2"}
        with pytest.raises(
            InvalidRequest, match="parameters: PIPELINE 2 x TENSOR 2 = 4 ranks do not divide WORLD_SIZE 2"
        ):
            client.submit("language-model", "dialog", version, instances=2, parameters=wrong)
        assert list(client.list()) == []
