"""The model: a GPT-style decoder. A process may hold only some of its layers.

A layer has the same number in a part as in the whole model, so weights have the same names everywhere.
Without dropout, only the initial weights are random. The seed of each weight depends on its name, so every
layout starts with the same weights. There are no biases. Some biases would have a gradient of zero except for
rounding errors, and Adam makes a full step even from a tiny gradient. So with biases, the results of
different layouts could not be compared.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from language_model.dropout import Dropout, RandomState, Site
from language_model.layout import VOCABULARY, Layout

SPREAD = 0.02
"""The standard deviation of the initial weights."""


class Embedding(nn.Module):
    """The embedding of a token and of its position."""

    def __init__(self, layout: Layout, state: RandomState) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, layout.width)
        self.places = nn.Embedding(layout.context, layout.width)
        self.dropout = Dropout(layout.dropout, state, 0, Site.EMBEDDING)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (examples, context) to vectors (examples, context, width)."""
        places = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        meaning: Tensor = self.dropout(self.tokens(tokens) + self.places(places))
        return meaning


class Attention(nn.Module):
    """Causal self-attention with several heads."""

    def __init__(self, layout: Layout, state: RandomState, number: int) -> None:
        super().__init__()
        self._head_width = layout.width // layout.heads
        self._is_explicit = layout.is_attention_explicit
        self.query_key_value = nn.Linear(layout.width, 3 * layout.width, bias=False)
        self.output = nn.Linear(layout.width, layout.width, bias=False)
        self.dropout = Dropout(layout.dropout, state, number, Site.SCORES)

    def forward(self, x: Tensor) -> Tensor:
        """Map vectors of shape (examples, context, width) to the same shape."""
        projected = self.query_key_value(x)
        # In a projected vector, heads are the outermost dimension, so that each tensor rank gets whole heads.
        heads = projected.unflatten(-1, (-1, 3, self._head_width)).permute(3, 0, 2, 1, 4)
        query, key, value = heads.unbind(0)
        mixed: Tensor = self.output(self.core(query, key, value).transpose(1, 2).flatten(2))
        return mixed

    def core(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the output of attention for each token.

        All shapes are (examples, heads, context, width of a head). Without the fused kernel, the operations
        are those that Korthikanti et al., 2022, recompute.
        """
        if not self._is_explicit:
            return functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        context = query.shape[2]
        later = torch.full((context, context), -torch.inf, device=query.device, dtype=query.dtype).triu(1)
        scores = query * self._head_width**-0.5 @ key.transpose(-2, -1) + later
        seen: Tensor = self.dropout(scores.softmax(-1)) @ value
        return seen


class FeedForward(nn.Module):
    """A feed-forward network whose inner width is four times `width`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map vectors of shape (examples, context, width) to the same shape."""
        narrowed: Tensor = self.down(functional.gelu(self.up(x)))
        return narrowed


class Layer(nn.Module):
    """Attention and a feed-forward network, each with a norm before it and a residual connection."""

    def __init__(self, layout: Layout, state: RandomState, number: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(layout.width, bias=False)
        self.attention = Attention(layout, state, number)
        self.attention_dropout = Dropout(layout.dropout, state, number, Site.ATTENTION)
        self.feed_forward_norm = nn.LayerNorm(layout.width, bias=False)
        self.feed_forward = FeedForward(layout.width)
        self.feed_forward_dropout = Dropout(layout.dropout, state, number, Site.FEED_FORWARD)

    def forward(self, x: Tensor) -> Tensor:
        """Map vectors of shape (examples, context, width) to the same shape."""
        x = x + self.attention_dropout(self.attention(self.attention_norm(x)))
        added: Tensor = x + self.feed_forward_dropout(self.feed_forward(self.feed_forward_norm(x)))
        return added


class Head(nn.Module):
    """Computes the scores of the next token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, bias=False)
        self.output = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map vectors (examples, context, width) to scores (examples, context, vocabulary)."""
        scores: Tensor = self.output(self.norm(x))
        return scores


class LanguageModel(nn.Module):
    """The model, or some of its layers.

    A part with the first layer has the embedding, and a part with the last layer has the head.
    """

    def __init__(
        self,
        embedding: Embedding | None,
        layers: Mapping[int, Layer],
        head: Head | None,
        random_state: RandomState,
    ) -> None:
        super().__init__()
        self.random_state = random_state
        """The state of the random numbers of dropout."""
        self.embedding = embedding
        self.layers = nn.ModuleDict({str(number): layer for number, layer in layers.items()})
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens (in the first part) or the output of the previous part to the output of this part.

        The output of the last part is the scores.
        """
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in self.layers.values():
            x = layer(x)
        return x if self.head is None else self.head(x)

    def part(self, layers: range, layout: Layout) -> "LanguageModel":
        """Return the part with these layers, which remain the same objects."""
        return LanguageModel(
            self.embedding if 0 in layers else None,
            {number: cast(Layer, self.layers[str(number)]) for number in layers},
            self.head if layout.layers - 1 in layers else None,
            self.random_state,
        )


def build(layout: Layout, layers: Sequence[int], device: torch.device) -> LanguageModel:
    """Build the part of the model with these layers and initial weights."""
    state = RandomState(layout.seed)
    with torch.device("meta"):
        model = LanguageModel(
            Embedding(layout, state) if 0 in layers else None,
            {number: Layer(layout, state, number) for number in layers},
            Head(layout.width) if layout.layers - 1 in layers else None,
            state,
        )
    model.to_empty(device=device)
    for name, weight in model.named_parameters():
        _initialise(name, weight.detach(), layout)
    return model


def _initialise(name: str, weight: Tensor, layout: Layout) -> None:
    """Set a weight to its initial value: 1 for norms, random numbers for matrices.

    Matrices whose output is added to the residual start smaller in deeper models, as in GPT-2.
    """
    if weight.dim() == 1:
        weight.fill_(1.0)
        return
    digest = hashlib.sha256(f"{layout.seed}:{name}".encode()).digest()
    chance = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))
    is_added = name.endswith(("attention.output.weight", "down.weight"))
    spread = SPREAD / (2 * layout.layers) ** 0.5 if is_added else SPREAD
    weight.copy_(torch.randn(weight.shape, generator=chance) * spread)


def loss_of(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of the targets in nats per token, always computed in fp32."""
    return functional.cross_entropy(scores.flatten(0, 1).float(), targets.flatten())
