"""A trained classifier: the model with its vocabulary and the names of its classes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Self

import torch
from trainer_kit.errors import ArtifactError

from intent_classification.model import BagOfEmbeddings, pack
from intent_classification.vocabulary import Vocabulary

WEIGHTS_FILE, VOCABULARY_FILE, LABELS_FILE = "model.pt", "vocabulary.json", "labels.json"


@dataclass(frozen=True)
class Prediction:
    """The most probable class of a text."""

    label: str
    probability: float


@dataclass(frozen=True)
class Classifier:
    """Classifies texts."""

    model: BagOfEmbeddings
    vocabulary: Vocabulary
    labels: Sequence[str]

    @classmethod
    def untrained(cls, vocabulary: Vocabulary, labels: Sequence[str], fc_size: int) -> Self:
        """Create a classifier with random weights."""
        return cls(BagOfEmbeddings(len(vocabulary), fc_size, len(labels)), vocabulary, labels)

    @torch.no_grad()
    def classify(self, text: str) -> Prediction:
        """Return the most probable class of `text`.

        If `text` has no known term, the model's biases decide, usually for the most frequent class.
        """
        terms, offsets = pack([self.vocabulary.encode(text)], self.model.output.weight.device)
        probability, index = self.model(terms, offsets).softmax(dim=1).max(dim=1)
        return Prediction(self.labels[int(index)], float(probability))

    def save(self, folder: Path) -> None:
        """Write the classifier to `folder`, with its weights as CPU tensors."""
        weights = {name: tensor.cpu() for name, tensor in self.model.state_dict().items()}
        torch.save(weights, folder / WEIGHTS_FILE)
        (folder / VOCABULARY_FILE).write_text(json.dumps(self.vocabulary.terms), encoding="utf-8")
        (folder / LABELS_FILE).write_text(json.dumps(self.labels), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the classifier from `folder`. Raises ArtifactError if it is missing or damaged."""
        try:
            weights = torch.load(folder / WEIGHTS_FILE, weights_only=True, map_location="cpu")
            vocabulary = Vocabulary(json.loads((folder / VOCABULARY_FILE).read_text(encoding="utf-8")))
            labels = json.loads((folder / LABELS_FILE).read_text(encoding="utf-8"))
            classifier = cls.untrained(vocabulary, labels, fc_size=len(weights["hidden.bias"]))
            classifier.model.load_state_dict(weights)
        except FileNotFoundError as error:
            raise ArtifactError(
                f"this is not a text classifier: it has no {Path(error.filename).name}"
            ) from error
        except ValueError as error:
            raise ArtifactError(
                "this is not a text classifier: its vocabulary or its labels are not JSON"
            ) from error
        except (KeyError, TypeError, RuntimeError, UnpicklingError) as error:
            raise ArtifactError("this is not a text classifier: it is damaged or another model") from error
        return classifier
