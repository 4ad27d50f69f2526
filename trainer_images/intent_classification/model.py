"""The model: a text is the sum of its terms' embeddings, and two layers tell its class from that."""

import torch
from torch import Tensor, nn
from torch.nn import functional

EMBEDDING_SIZE = 64
EMBEDDING_RANGE = 0.02


class BagOfEmbeddings(nn.Module):
    """Scores of every class for each text of a batch.

    The terms are summed and not averaged, so a telling term weighs the same in a long text as in a
    short one, and they start near zero, so at first a text is not drowned in its rare terms' noise.
    Nothing in it is random or depends on the other texts of the batch: how a batch is shared out
    over processes changes no result.
    """

    def __init__(self, terms: int, fc_size: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(terms, EMBEDDING_SIZE, mode="sum")
        self.hidden = nn.Linear(EMBEDDING_SIZE, fc_size)
        self.output = nn.Linear(fc_size, classes)
        nn.init.uniform_(self.embedding.weight, -EMBEDDING_RANGE, EMBEDDING_RANGE)

    def forward(self, terms: Tensor, offsets: Tensor) -> Tensor:
        """Scores (texts x classes) of the texts in `terms`, one after the other, each from its offset."""
        bags: Tensor = self.embedding(terms, offsets)
        scores: Tensor = self.output(functional.relu(self.hidden(bags)))
        return scores


def pack(texts: list[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """The encoded texts as the model takes them: all their terms, and where each text begins."""
    lengths = torch.tensor([0, *map(len, texts[:-1])])
    terms = torch.tensor([term for text in texts for term in text], dtype=torch.long)
    return terms.to(device), lengths.cumsum(0).to(device)
