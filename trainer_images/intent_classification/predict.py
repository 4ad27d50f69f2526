"""Asks a published model about one text.

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
    """What the model at `model_uri` makes of `text`; raises ArtifactError when there is no such model."""
    with artifacts.opened(model_uri) as artifact:
        return Classifier.load(artifact.folder).classify(text)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="predict", description="Ask a trained model for the class of a text."
    )
    parser.add_argument(
        "--model", required=True, metavar="URI", help="the folder that the model was published to"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("text")
    options = parser.parse_args()

    try:
        prediction = predict(options.model, options.text)
    except (TrainingError, OSError) as error:
        sys.exit(f"error: {error}")
    told = f"{prediction.label} (probability {prediction.probability:.3f})"
    sys.stdout.write(f"{json.dumps(asdict(prediction)) if options.json else told}\n")


if __name__ == "__main__":
    main()
