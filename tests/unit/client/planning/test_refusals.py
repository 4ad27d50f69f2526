"""The printed options are accepted by the check of `language-model`, or a note says what it refuses."""

import json
import os
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from unittest.mock import patch

import pytest
from language_model import check
from language_model.layout import VOCABULARY

from training_service.client.cli.render import plans
from training_service.client.planning import reasons
from training_service.client.planning.cluster import Cluster
from training_service.client.planning.costs import Layout, Training
from training_service.client.planning.model import Model
from training_service.client.planning.refusals import refusals
from training_service.client.planning.search import LEAST_GAIN, Decision, Limits, decide

EIGHT = Model(layers=8, width=4096, heads=8, sequence=1024, vocabulary=VOCABULARY, tied=False)
SEVEN = replace(EIGHT, layers=7, width=1536, heads=12, sequence=1536)
"""Both are GPTs on bytes, so a note is only about the layout."""
GPT = Training(EIGHT, batch=64)


def planned(model: Model, precision: str) -> Iterator[plans.Advice]:
    """Yield the decisions for many clusters and batches, if something fits."""
    for (machines, each, divides), gigabytes, batch in product(
        ((1, 2, False), (1, 3, False), (4, 1, False), (2, 4, False), (2, 4, True)), (0.4, 2, 10, 80), (1, 48)
    ):
        training = Training(model, batch, precision)
        cluster = Cluster(gigabytes * 1e9, 312e12, machines, each, outer_bandwidth=3e9)
        limits = Limits(context_parallel=divides)
        decision = decide(training, cluster, limits=limits, all_devices=True)
        if isinstance(decision, Decision):
            yield plans.Advice(training, cluster, decision, LEAST_GAIN)


def is_accepted(devices: int, parameters: dict[str, str]) -> bool:
    with patch.dict(os.environ, {"WORLD_SIZE": str(devices), **parameters}, clear=True):
        return check.main() == os.EX_OK


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("model", [EIGHT, SEVEN], ids=["8-layers", "7-layers"])
def test_a_note_says_what_is_refused_and_there_is_none_if_all_is_accepted(
    model: Model, precision: str
) -> None:
    found: Counter[bool] = Counter()
    for advice in planned(model, precision):
        *before, line = plans.text(advice).splitlines()
        _, devices, *options = shlex.split(line)
        parameters = dict(option.split("=") for option in options if option != "-p")
        accepted = is_accepted(int(devices), parameters)
        divided = advice.decision.best.layout.context > 1
        assert bool(advice.note) == (not accepted or divided), f"note: {advice.note!r}, options: {line}"
        assert not advice.note or advice.note == before[-1]
        found[accepted] += 1
    assert min(found[True], found[False]) >= 5


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_each_choice_in_json_has_its_refusals(precision: str) -> None:
    found: Counter[bool] = Counter()
    for advice in planned(SEVEN, precision):
        answer = json.loads(advice.as_json())
        for choice in (*answer["choices"], *answer["by_devices"]):
            accepted = is_accepted(choice["devices"], choice["parameters"])
            assert bool(choice["refusals"]) == (not accepted or choice["layout"]["context"] > 1), choice
            found[accepted] += 1
    assert min(found[True], found[False]) > 20


@pytest.mark.parametrize(
    ("training", "layout", "sentence"),
    [
        (
            replace(GPT, precision="fp16"),
            Layout(data=16, strategy="zero1"),
            "PRECISION=fp16 with STRATEGY=zero1: it needs STRATEGY=ddp",
        ),
        (
            GPT,
            Layout(tensor=2, offload="optimizer"),
            "OFFLOAD=optimizer with STRATEGY=ddp, TENSOR=2 and 1 data rank: it needs",
        ),
        (
            GPT,
            Layout(data=4, strategy="zero3", offload="optimizer"),
            "OFFLOAD=optimizer with STRATEGY=zero3, TENSOR=1 and 4 data ranks: it needs",
        ),
        (
            replace(GPT, model=SEVEN),
            Layout(pipeline=4, micro_batches=4, stages=2),
            "LAYERS=7 with 8 stages: each stage needs a layer",
        ),
        (
            replace(GPT, model=SEVEN),
            Layout(tensor=3),
            "TENSOR=3: it must divide its vocabulary of 256",
        ),
        (
            replace(GPT, model=replace(EIGHT, heads=12, width=500, head_size=64)),
            Layout(),
            "WIDTH=500 with HEADS=12: WIDTH must be a multiple of HEADS",
        ),
        (
            replace(GPT, model=replace(EIGHT, heads=20_000, width=20_000)),
            Layout(),
            "HEADS=20000: at most 10000 are allowed",
        ),
        (
            replace(GPT, model=replace(EIGHT, sequence=4096)),
            Layout(),
            "CONTEXT=4096: at most 4095 are allowed",
        ),
        (replace(GPT, batch=1_000_001), Layout(), "BATCH_SIZE=1000001: at most 1000000 are allowed"),
        (
            replace(GPT, batch=1_000_000),
            Layout(micro_batches=200_000),
            "MICRO_BATCHES=200000: at most 100000 are allowed",
        ),
    ],
)
def test_a_refusal_names_the_values_and_the_rule(training: Training, layout: Layout, sentence: str) -> None:
    said = list(refusals(training, layout))
    assert len(said) == 1
    assert said[0].startswith(f"language-model refuses {sentence}")
    assert not is_accepted(layout.devices, reasons.parameters(training, layout))


@pytest.mark.parametrize(
    ("training", "layout"),
    [
        (replace(GPT, precision="fp16"), Layout(data=16)),
        (GPT, Layout(data=16, strategy="zero1")),
        (GPT, Layout(offload="optimizer")),
        (GPT, Layout(data=2, tensor=2, strategy="zero1", offload="optimizer")),
        (GPT, Layout(data=2, tensor=2, pipeline=4, stages=2, micro_batches=4, strategy="zero3")),
        (replace(GPT, model=replace(EIGHT, sequence=4095)), Layout()),
        (replace(GPT, batch=1_000_000), Layout(micro_batches=100_000)),
    ],
)
def test_accepted_layouts_have_no_refusals(training: Training, layout: Layout) -> None:
    assert list(refusals(training, layout)) == []
    assert is_accepted(layout.devices, reasons.parameters(training, layout))


def test_stages_without_layers_can_be_left_out_as_the_refusal_says() -> None:
    layout = Layout(pipeline=4, micro_batches=4, stages=2)
    training = replace(GPT, model=SEVEN)
    (said,) = refusals(training, layout)
    assert said.endswith("Leave out SCHEDULE and STAGES_PER_RANK.")
    left = reasons.parameters(training, layout)
    del left["SCHEDULE"], left["STAGES_PER_RANK"]
    assert is_accepted(layout.devices, left)


def test_divided_sequences_are_named_even_if_the_parameters_are_accepted() -> None:
    """The options have no parameter for context ranks, so they would select a different layout."""
    layout = Layout(data=2, context=4)
    assert is_accepted(layout.devices, reasons.parameters(GPT, layout))
    assert list(refusals(GPT, layout)) == [
        "language-model cannot divide sequences among 4 devices: plan without --context-parallel."
    ]
