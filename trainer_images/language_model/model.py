"""The model: a GPT-style decoder, of which a process may hold some of the layers only.

No weight is called by another name for that: the layers of a part keep their numbers. Nothing in it is
random but the first weights, each drawn from a seed of its own name, so that every layout starts from the
same ones. There are no biases: the gradient of some is zero but for rounding, and Adam makes of any
gradient, however small, a full step, so that layouts could not be compared.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from language_model.layout import VOCABULARY, Layout

SPREAD = 0.02
"""Standard deviation of the first weights."""


class Embedding(nn.Module):
    """What a token and its place in the sequence mean."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(context, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Of tokens (examples x context), vectors (examples x context x width)."""
        places = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        meaning: Tensor = self.tokens(tokens) + self.places(places)
        return meaning


class Attention(nn.Module):
    """Each place looks at those before it, with several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._head_width = width // heads
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Of vectors (examples x context x width), as many."""
        projected = self.query_key_value(x)
        # Heads come outermost, so that a cut through the columns leaves each tensor rank whole heads.
        heads = projected.unflatten(-1, (-1, 3, self._head_width)).permute(3, 0, 2, 1, 4)
        query, key, value = heads.unbind(0)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        mixed: Tensor = self.output(seen.transpose(1, 2).flatten(2))
        return mixed


class FeedForward(nn.Module):
    """Each place by itself, four times as wide."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Of vectors (examples x context x width), as many."""
        narrowed: Tensor = self.down(functional.gelu(self.up(x)))
        return narrowed


class Layer(nn.Module):
    """Attention and feed-forward, each on normed vectors and added to them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.attention = Attention(width, heads)
        self.feed_forward_norm = nn.LayerNorm(width, bias=False)
        self.feed_forward = FeedForward(width)

    def forward(self, x: Tensor) -> Tensor:
        """Of vectors (examples x context x width), as many."""
        x = x + self.attention(self.attention_norm(x))
        added: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return added


class Head(nn.Module):
    """What the next token may be."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, bias=False)
        self.output = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Of vectors (examples x context x width), scores (examples x context x vocabulary)."""
        scores: Tensor = self.output(self.norm(x))
        return scores


class LanguageModel(nn.Module):
    """The whole model, or a part of it: some of its layers, with the embedding before the first of all
    layers and the head after the last.
    """

    def __init__(self, embedding: Embedding | None, layers: Mapping[int, Layer], head: Head | None) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleDict({str(number): layer for number, layer in layers.items()})
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        """Of tokens, or what the part before made of them, scores, or what the next part needs."""
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in self.layers.values():
            x = layer(x)
        return x if self.head is None else self.head(x)

    def part(self, layers: range, layout: Layout) -> "LanguageModel":
        """The part that has these layers of it, which stay the same objects."""
        return LanguageModel(
            self.embedding if 0 in layers else None,
            {number: cast(Layer, self.layers[str(number)]) for number in layers},
            self.head if layout.layers - 1 in layers else None,
        )


def build(layout: Layout, layers: Sequence[int], device: torch.device) -> LanguageModel:
    """The part of the model that has these layers, with its first weights."""
    with torch.device("meta"):
        model = LanguageModel(
            Embedding(layout.context, layout.width) if 0 in layers else None,
            {number: Layer(layout.width, layout.heads) for number in layers},
            Head(layout.width) if layout.layers - 1 in layers else None,
        )
    model.to_empty(device=device)
    for name, weight in model.named_parameters():
        _initialise(name, weight.detach(), layout)
    return model


def _initialise(name: str, weight: Tensor, layout: Layout) -> None:
    """Norms start as they are; what is added to the vectors starts smaller, the more is added (GPT-2)."""
    if weight.dim() == 1:
        weight.fill_(1.0)
        return
    digest = hashlib.sha256(f"{layout.seed}:{name}".encode()).digest()
    chance = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))
    is_added = name.endswith(("attention.output.weight", "down.weight"))
    spread = SPREAD / (2 * layout.layers) ** 0.5 if is_added else SPREAD
    weight.copy_(torch.randn(weight.shape, generator=chance) * spread)


def loss_of(scores: Tensor, targets: Tensor) -> Tensor:
    """The mean cross entropy of the targets, in nats a token; in fp32 whatever the passes compute in."""
    return functional.cross_entropy(scores.flatten(0, 1).float(), targets.flatten())
