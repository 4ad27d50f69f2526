"""The sizes of a transformer, and the parameters, operations and activations that follow from them.

Sources: Narayanan et al., *Megatron-LM on GPU clusters*, SC 2021, appendix (operations); Korthikanti et al.,
*Reducing activation recomputation*, 2022, section 4 (activations).
"""

from dataclasses import dataclass
from functools import cached_property

LARGEST = {
    "layers": 10_000,
    "width": 1_000_000,
    "heads": 100_000,
    "key_value_heads": 100_000,
    "head_size": 100_000,
    "inner": 10_000_000,
    "vocabulary": 10_000_000,
    "sequence": 100_000_000,
    "positions": 100_000_000,
}
"""The largest accepted value of each size."""


@dataclass(frozen=True)
class Model:
    """A stack of equal transformer layers between an embedding and a head.

    A size of 0 stands for its default.
    """

    layers: int
    width: int
    heads: int
    sequence: int
    """The number of tokens of an example."""
    vocabulary: int = 50_257
    key_value_heads: int = 0
    """The number of heads of keys and values; by default `heads`."""
    head_size: int = 0
    """The number of components of a head; by default `width` / `heads`."""
    inner: int = 0
    """The width of the feed-forward part; by default 4 `width`."""
    gated: bool = False
    """Whether the feed-forward part has three matrices (SwiGLU) instead of two."""
    tied: bool = True
    """Whether the head uses the matrix of the embedding."""
    causal: bool = True
    """Whether a token attends only to itself and earlier tokens, which halves the operations of attention."""
    positions: int = 0
    """The number of learned positions; 0 if positions have no parameters."""

    def __post_init__(self) -> None:
        """Check the sizes. Raises ValueError, which names the size."""
        for name, largest in LARGEST.items():
            value = getattr(self, name)
            least = 1 if name in ("layers", "width", "heads", "sequence", "vocabulary") else 0
            if not least <= value <= largest:
                raise ValueError(f"{name} is {value:g}; it must be from {least} to {largest:g}")
        if not self.head_size and self.width % self.heads:
            raise ValueError(
                f"width {self.width} is not a multiple of heads {self.heads}; correct one of them"
            )
        if self.key_value_heads and self.heads % self.key_value_heads:
            raise ValueError(
                f"heads {self.heads} is not a multiple of key_value_heads {self.key_value_heads}: each head "
                "of keys and values serves the same number of heads"
            )

    @cached_property
    def key_value_width(self) -> int:
        """The number of components of a token's keys in all heads together. The values have as many."""
        return (self.key_value_heads or self.heads) * self._head_size

    @cached_property
    def query_width(self) -> int:
        """The number of components of a token's queries in all heads together."""
        return self.heads * self._head_size

    @cached_property
    def feed_forward(self) -> int:
        """The width of the feed-forward part."""
        return self.inner or 4 * self.width

    @property
    def _head_size(self) -> int:
        return self.head_size or self.width // self.heads

    @cached_property
    def layer_parameters(self) -> int:
        """The number of parameters of a layer: its matrices and norms."""
        attention = 2 * self.width * (self.query_width + self.key_value_width)
        return attention + (3 if self.gated else 2) * self.width * self.feed_forward + 2 * self.width

    @cached_property
    def embedding_parameters(self) -> int:
        """The number of parameters of the embedding. An untied head has as many."""
        return self.vocabulary * self.width

    @cached_property
    def parameters(self) -> int:
        """The number of parameters of the whole model."""
        ends = self.embedding_parameters * (1 if self.tied else 2) + self.positions * self.width
        return self.layers * self.layer_parameters + ends

    @cached_property
    def layer_operations(self) -> float:
        """Operations of a layer's forward pass for a token: 2 for each parameter, and those of attention."""
        attention = 4.0 * self.sequence * self.query_width
        return 2.0 * self.layer_parameters + (attention / 2 if self.causal else attention)

    @cached_property
    def head_operations(self) -> float:
        """Operations of the head's forward pass for a token."""
        return 2.0 * self.embedding_parameters

    def step_operations(self, batch: int) -> float:
        """Return the operations of a step with `batch` examples.

        A backward pass has twice as many operations as a forward pass.
        """
        forward = self.layers * self.layer_operations + self.head_operations
        return 3.0 * forward * batch * self.sequence

    def layer_activations(self, tensor: int, *, sequence_parallel: bool) -> float:
        """Return how many numbers a rank keeps per token for the backward pass of a layer.

        `tensor` is the number of tensor ranks.

        The count follows Korthikanti et al., without dropout and with a fused kernel of attention. For a GPT,
        a single tensor rank keeps 16 vectors of `width` numbers. In 16-bit numbers, these vectors take 32
        bytes for each unit of the width; with dropout, the paper counts 34 bytes. Four of the vectors are
        divided among the tensor ranks only with sequence parallelism: the inputs of the two norms, and of the
        matrices after the norms. The other vectors are always divided. A gated feed-forward part keeps the
        inputs and the output of its gate.
        """
        whole = 4.0 * self.width
        divided = (
            2.0 * (self.query_width + self.key_value_width) + (3 if self.gated else 2) * self.feed_forward
        )
        return whole / (tensor if sequence_parallel else 1) + divided / tensor
