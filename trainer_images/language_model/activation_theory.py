"""Formulas for the memory of activations: activations that layers keep for their backward pass, and temporary
ones. Results are counts of numbers per token, unless a docstring says bytes.

For a layer in fp16, Korthikanti et al., 2022, count 34 bytes for each element of a token's vector, and 5
bytes for each score of each head. Here, without biases and in fp32, a layer keeps 16 vectors of the model's
width for each token. Attention that computes its scores as a separate operation keeps one number per score.
Dropout keeps another number per score, and a byte for each element of a mask. The formulas for the backward
pass of a layer were fitted to measurements.

This module does not need PyTorch.
"""

from dataclasses import dataclass

from language_model.layout import VOCABULARY, Layout

FLOAT, INTEGER = 4, 8
"""The sizes of a number and of a token, in bytes."""
MASK = 1 / FLOAT
"""The size of an element of a mask, relative to a number in fp32."""


@dataclass(frozen=True)
class _Layer:
    """The numbers per token that a layer keeps for its backward pass, by kind."""

    norms: float
    """Inputs and outputs of norms."""
    products: float
    """Inputs and outputs of matrix products and of the activation function, without attention's core."""
    core: float
    """The scores after the softmax and, with dropout, the scores after dropout and the mask."""
    masks: float
    """The masks of dropout between the parts of a layer."""
    scores: float
    """The number of scores if they are computed as a separate operation, otherwise 0."""

    @property
    def total(self) -> float:
        return self.norms + self.products + self.core + self.masks


def of_layer(layout: Layout) -> _Layer:
    """Return how many numbers per token a layer keeps without recomputation, on one tensor rank."""
    width, per = layout.width, layout.tensor
    divided = per if layout.sequence_parallel else 1
    scores = layout.heads * layout.context / per if layout.is_attention_explicit else 0.0
    return _Layer(
        norms=2 * width / divided + 2 * width,  # inputs are divided; outputs are gathered, so they are whole
        products=12 * width / per,
        core=scores * (2 + MASK) if layout.dropout else scores,
        masks=2 * MASK * width / divided if layout.dropout else 0.0,
        scores=scores,
    )


def kept(layout: Layout, layers: int, *, has_embedding: bool) -> float:
    """Return how many numbers per token `layers` layers keep for the backward pass, without the head."""
    layer, width = of_layer(layout), layout.width
    divided = layout.tensor if layout.sequence_parallel else 1
    embedding = MASK * width / divided if has_embedding and layout.dropout else 0.0
    if layout.checkpointing == "selective":
        return embedding + layers * (layer.total - layer.core)
    if layout.checkpointing == "keep_products":
        return embedding + layers * (2 * width / divided + 9 * width / layout.tensor + layer.scores)
    every = layout.recomputed_every
    again = -(-layers // every) if every else 0
    return embedding + again * width / divided + (layers - again) * layer.total


def of_head(layout: Layout) -> float:
    """Return how many numbers per token the head needs: for its norm, its scores, and the scores' logarithms
    and gradient.
    """
    return 2 * layout.width + 3 * VOCABULARY / (layout.tensor if layout.loss_parallel else 1)


def of_backward(layout: Layout) -> float:
    """Return how many numbers per token a layer's backward pass needs at its peak, beyond those that all
    layers keep.

    The result may be negative: during the pass, a layer frees the numbers that it kept, and the head has
    freed its own before the pass.
    """
    layer, width = of_layer(layout), layout.width
    freed = layer.norms / 2 + layer.products * 2 / 3  # by the backward pass of the feed-forward part
    attention = 2 * layer.scores  # the gradients of scores before and after the softmax
    if layout.checkpointing == "selective":
        return layer.core + attention + 3 * width - freed
    if layout.checkpointing == "keep_products":
        again = layer.core if layout.dropout else 0.0
        return max(12 * width, again + attention - freed / 2)
    if layout.recomputed_every == 1:
        return layer.total + max(5 * width, attention - freed)
    return attention - freed


def on_device(layout: Layout) -> float:
    """Return how many numbers per token a layer's backward pass needs on the device if the host holds all
    numbers that layers keep.
    """
    layer, width = of_layer(layout), layout.width
    if layout.recomputed_every:
        freed = layer.norms / 2 + layer.products * 2 / 3
        return layer.total + max(6.5 * width, 2 * layer.scores - freed)
    around = 7 * width if layout.checkpointing == "selective" else 3.5 * width
    return max(13 * width, layer.core + 2 * layer.scores + around if layer.scores else 0.0)


def statistics(layout: Layout) -> float:
    """Return how many statistics per token a layer keeps: those of its norms and, with the fused kernel of
    attention, those of the scores.
    """
    fused = 0.0 if layout.is_attention_explicit else layout.heads / layout.tensor
    return 4 / (layout.tensor if layout.sequence_parallel else 1) + fused


def offloaded(layout: Layout) -> float:
    """Return the bytes that OFFLOAD=activations copies to the host in a step. As many are copied back.

    The result is for the rank that copies the most.
    """
    every = layout.recomputed_every
    divided = layout.tensor if layout.sequence_parallel else 1
    head = (layout.width + 2) / divided + layout.width
    head += VOCABULARY / (layout.tensor if layout.loss_parallel else 1)
    stages = layout.layers_of_stages
    most = 0.0
    for rank in range(layout.pipeline):
        layers = sum(len(stage) for stage in stages[rank :: layout.pipeline])
        whole = layers - (-(-layers // every) if every else 0)
        numbers = kept(layout, layers, has_embedding=rank == 0) + whole * statistics(layout)
        most = max(most, numbers + (head if rank == layout.pipeline - 1 else 0.0))
    return layout.batch_size / layout.data * layout.context * most * FLOAT


def layer_by_layer(layout: Layout) -> float:
    """Return the peak memory of the device in bytes with OFFLOAD=layers, including weights and gradients.

    The peak is reached in one layer or in the head, so it does not depend on the number of layers.
    """
    width, layer = layout.width, of_layer(layout)
    tokens = layout.batch_size / layout.data / layout.micro_batches * layout.context
    activations = layer.total + statistics(layout) + max(6 * width, 2 * layer.scores - 8 * width)
    matrix = width**2
    if layout.micro_batches == 1:
        # Activations are freed while gradients are computed. So the peak is either at the first gradients,
        # with all activations, or at the last gradients, with few activations.
        in_layer = max(tokens * activations + 16 * matrix, tokens * 9 * width + 24 * matrix)
        head = tokens * (of_head(layout) + 2) + VOCABULARY * width
    else:  # a gradient exists beside the sum to which it is added
        in_layer = tokens * activations + 28 * matrix
        head = tokens * (of_head(layout) + 2) + 2 * VOCABULARY * width
    batch = 2 * INTEGER * tokens * layout.micro_batches
    return max(in_layer, head) * FLOAT + batch
