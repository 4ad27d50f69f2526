"""Masks of dropout: by position, the same for a recomputation, and the same in every layout."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from language_model.assembly import assemble
from language_model.data import Batch
from language_model.dropout import BITS, Dropout, Position, RandomState, Site, random_bits
from language_model.layout import Layout
from language_model.memory import recompute
from language_model.model import build, loss_of
from torch import Tensor
from torch.utils.checkpoint import CheckpointError
from trainer_kit.group import Group

CPU = torch.device("cpu")
LAYOUT = Layout(layers=2, width=32, context=16, batch_size=4, dropout=0.2)
RECOMPUTED = ("full", "selective", "keep_products", "every:2")
AT = Position(step=3, example=8)


def mask(
    position: Position = AT, layer: int = 0, site: Site = Site.SCORES, share: int | None = None
) -> Tensor:
    """Return the mask of one process for 2 examples with 4 heads, or of one of two tensor ranks."""
    state = RandomState(seed=1)
    dropout = Dropout(0.25, state, layer, site)
    heads = 4 if share is None else 2
    dropout.share = share or 0
    with state.at(position):
        kept: Tensor = dropout(torch.ones(2, heads, 64, 64)) != 0
        return kept


def agreement(one: Tensor, other: Tensor) -> float:
    return float((one == other).double().mean())


INDEPENDENT = pytest.approx(0.75**2 + 0.25**2, abs=0.02)


def test_the_rate_is_the_share_of_dropped_numbers_and_the_mean_stays() -> None:
    state = RandomState(seed=1)
    with state.at(AT):
        dropped = Dropout(0.25, state, 0, Site.ATTENTION)(torch.ones(4, 64, 64))
    assert dropped.unique().tolist() == [0.0, pytest.approx(1 / 0.75)]
    assert float((dropped == 0).double().mean()) == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("other", [0, 1, 2**40])
def test_random_bits_are_uniform_and_independent_of_those_with_another_key(other: int) -> None:
    ours, others = (random_bits(key, range(100_000), CPU).double() / 2**BITS for key in (7, 7 + 1 + other))
    assert float(ours.mean()) == pytest.approx(1 / 2, abs=0.005)
    assert float(ours.var()) == pytest.approx(1 / 12, abs=0.001)
    assert abs(float(torch.corrcoef(torch.stack([ours, others]))[0, 1])) < 0.01
    assert abs(float(torch.corrcoef(torch.stack([ours[1:], ours[:-1]]))[0, 1])) < 0.01


def test_parts_of_a_mask_do_not_depend_on_how_it_is_divided() -> None:
    assert torch.equal(torch.cat([mask(share=0), mask(share=1)], dim=1), mask())
    large = random_bits(7, range(200_000), CPU)
    assert torch.equal(random_bits(7, range(150_000, 160_000), CPU), large[150_000:160_000])


def test_masks_of_different_heads_on_tensor_ranks_are_independent() -> None:
    assert agreement(mask(share=0), mask(share=1)) == INDEPENDENT


@pytest.mark.parametrize(
    "other",
    [
        mask(position=Position(4, 8)),
        mask(position=Position(3, 10)),
        mask(layer=1),
        mask(site=Site.FEED_FORWARD),
    ],
    ids=["step", "examples of another data rank or micro-batch", "layer", "site"],
)
def test_masks_of_other_positions_are_independent(other: Tensor) -> None:
    assert agreement(mask(), other) == INDEPENDENT


def test_nothing_is_dropped_without_a_position() -> None:
    x = torch.ones(2, 3)
    assert Dropout(0.5, RandomState(seed=1), 0, Site.EMBEDDING)(x) is x


def gradients(layout: Layout) -> dict[str, Tensor]:
    """Return the gradients of two micro-batches whose backward passes come last, as in GPipe."""
    model = build(layout, range(layout.layers), CPU)
    recompute(model, layout)
    tokens = torch.randint(0, 256, (4, 17), generator=torch.Generator().manual_seed(1))
    losses = []
    for first in (0, 2):
        with model.random_state.at(Position(1, first)):
            part = tokens[first : first + 2]
            losses.append(loss_of(model(part[:, :-1]), part[:, 1:]))
    torch.autograd.backward(losses)
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def greatest_difference(checkpointing: str) -> float:
    plain, recomputed = gradients(LAYOUT), gradients(replace(LAYOUT, checkpointing=checkpointing))
    assert plain.keys() == recomputed.keys()
    return max(float((plain[name] - recomputed[name]).abs().max()) for name in plain)


@pytest.mark.parametrize("checkpointing", RECOMPUTED)
def test_gradients_are_equal_with_and_without_recomputation(checkpointing: str) -> None:
    assert greatest_difference(checkpointing) < 1e-7


@pytest.mark.parametrize("checkpointing", RECOMPUTED)
def test_gradients_differ_if_the_state_is_that_of_the_last_micro_batch(
    checkpointing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test before this one needs the state: without it, a recomputation would draw these masks."""
    monkeypatch.setattr(RandomState, "kept", lambda state: (nullcontext(), state.at(Position(1, 2))))
    assert greatest_difference(checkpointing) > 1e-4


@pytest.mark.parametrize("checkpointing", ["full", "selective"])
def test_a_recomputation_without_any_state_is_an_error(
    checkpointing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RandomState, "kept", lambda _: (nullcontext(), nullcontext()))
    with pytest.raises(CheckpointError, match="different number of tensors"):
        greatest_difference(checkpointing)


def test_an_evaluation_drops_nothing() -> None:
    group = Group(rank=0, size=1, device=CPU)
    tokens = torch.randint(0, 256, (4, 17), generator=torch.Generator().manual_seed(1))
    batch = Batch(tokens[:, :-1], tokens[:, 1:])
    plain, dropping = (assemble(replace(LAYOUT, dropout=rate), group) for rate in (0.0, 0.5))
    assert dropping.judge(batch) == pytest.approx(plain.judge(batch), abs=1e-6)
    assert dropping.learn(batch, 0.001, step=1) != pytest.approx(plain.learn(batch, 0.001, step=1), abs=1e-4)
