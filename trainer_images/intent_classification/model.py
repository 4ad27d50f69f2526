"""The model: a text is the sum of its terms' embeddings, and two layers predict its class."""

import torch
from torch import Tensor, nn
from torch.nn import functional

EMBEDDING_SIZE = 64
EMBEDDING_RANGE = 0.02


class BagOfEmbeddings(nn.Module):
    """Computes the scores of every class for each text of a batch.

    The embeddings are summed, not averaged, so an informative term has the same weight in a long text as in a
    short one. They start near zero, so the noise of rare terms is small at first. The output has no
    randomness and does not depend on other texts of the batch, so dividing a batch among processes changes no
    result.
    """

    def __init__(self, terms: int, fc_size: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(terms, EMBEDDING_SIZE, mode="sum")
        self.hidden = nn.Linear(EMBEDDING_SIZE, fc_size)
        self.output = nn.Linear(fc_size, classes)
        nn.init.uniform_(self.embedding.weight, -EMBEDDING_RANGE, EMBEDDING_RANGE)

    def forward(self, terms: Tensor, offsets: Tensor) -> Tensor:
        """Return scores of shape (texts, classes). Each text starts in `terms` at its offset."""
        bags: Tensor = self.embedding(terms, offsets)
        scores: Tensor = self.output(functional.relu(self.hidden(bags)))
        return scores


def pack(texts: list[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the concatenated terms of the encoded texts, and the offset of each text."""
    lengths = torch.tensor([0, *map(len, texts[:-1])])
    terms = torch.tensor([term for text in texts for term in text], dtype=torch.long)
    return terms.to(device), lengths.cumsum(0).to(device)
