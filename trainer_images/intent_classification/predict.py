"""Classifies one text with a published model.

python -m intent_classification.predict --model URI [--json] "where is the eiffel tower ?"
"""

import argparse
import json
import sys
from dataclasses import asdict

from trainer_kit import artifacts
from trainer_kit.errors import TrainingError

from intent_classification.classifier import Classifier, Prediction


def predict(model_uri: str, text: str) -> Prediction:
    """Classify `text` with the model at `model_uri`. Raises ArtifactError if there is no such model."""
    with artifacts.opened(model_uri) as artifact:
        return Classifier.load(artifact.folder).classify(text)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="predict", description="Classify a text with a trained model.")
    parser.add_argument("--model", required=True, metavar="URI", help="the folder of the published model")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("text")
    options = parser.parse_args()

    try:
        prediction = predict(options.model, options.text)
    except (TrainingError, OSError) as error:
        sys.exit(f"error: {error}")
    summary = f"{prediction.label} (probability {prediction.probability:.3f})"
    sys.stdout.write(f"{json.dumps(asdict(prediction)) if options.json else summary}\n")


if __name__ == "__main__":
    main()
