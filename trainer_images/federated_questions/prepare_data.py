"""Divides the question data among clients, and writes it to storage.

    python -m federated_questions.prepare_data --storage DIR_OR_URI [--clients 4] [--skew 0.5] [--json]

It writes `labels.csv`, `examples.csv` with the test questions, and for each client a file `client-N.csv` with
training questions that no other client has.
"""

import argparse
import csv
import io
import json
import sys
from collections.abc import Iterable, Sequence

import numpy as np
from intent_classification import questions
from intent_classification.questions import Question
from intent_classification.splits import Split, split_of
from trainer_kit import dataset_versions
from trainer_kit.errors import TrainingError

MOST_CLIENTS = 1000


def divided(asked: Sequence[Question], clients: int, skew: float, seed: int = 1) -> list[list[Question]]:
    """Return the questions of each client.

    A Dirichlet distribution of concentration 1 / `skew` divides the questions of each class: the larger
    `skew`, the fewer classes a client has (Hsu et al., arXiv:1909.06335, 2019). With a `skew` of 0, each
    class is divided evenly. Each client gets at least one question.
    """
    dice = np.random.default_rng(seed)
    found: list[list[Question]] = [[] for _ in range(clients)]
    for label in sorted({question.coarse for question in asked}):
        of_class = [question for question in asked if question.coarse == label]
        order = dice.permutation(len(of_class))
        shares = dice.dirichlet([1 / skew] * clients) if skew else np.full(clients, 1 / clients)
        borders = np.rint(np.cumsum(shares) * len(of_class)).astype(int)[:-1]
        for client, places in enumerate(np.split(order, borders)):
            found[client] += [of_class[place] for place in places]
    for own in found:
        if not own:
            own.append(max(found, key=len).pop())
    return found


def prepare(clients: int, skew: float, storage_uri: str, dataset_id: str) -> dataset_versions.DatasetVersion:
    """Divide the questions among clients, write them as a version of a dataset, and return this version.

    If this version exists already, nothing is written.
    """
    asked = questions.load()
    ids = {name: number for number, name in enumerate(sorted({each.coarse for each in asked}), start=1)}
    of_split = {split: [each for each in asked if split_of(each.text) is split] for split in Split}
    of_clients = divided(of_split[Split.TRAIN], clients, skew)
    files = {
        "labels.csv": _csv((number, name) for name, number in ids.items()),
        "examples.csv": _csv((each.text, ids[each.coarse], Split.TEST) for each in of_split[Split.TEST]),
        **{
            f"client-{client}.csv": _csv((each.text, ids[each.coarse], Split.TRAIN) for each in own)
            for client, own in enumerate(of_clients)
        },
    }
    return dataset_versions.publish(files, storage_uri, dataset_id)


def _csv(rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="prepare_data", description="Divide the questions among clients.")
    parser.add_argument("--storage", required=True, metavar="DIR_OR_URI", help="a folder, or any fsspec URI")
    parser.add_argument("--clients", type=int, default=4, metavar="N", help="number of clients (default: 4)")
    parser.add_argument(
        "--skew",
        type=float,
        default=0.5,
        help="how much the classes of clients differ; 0: not at all (default: 0.5)",
    )
    parser.add_argument(
        "--dataset-id", default="clients", metavar="ID", help="the dataset to write (default: clients)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if not 1 <= options.clients <= MOST_CLIENTS:
        parser.error(f"--clients must be from 1 to {MOST_CLIENTS}, but is {options.clients}")
    if not 0 <= options.skew < float("inf"):
        parser.error(f"--skew must be a finite number of at least 0, but is {options.skew}")
    try:
        version, uri = prepare(options.clients, options.skew, options.storage, options.dataset_id)
    except (TrainingError, OSError) as error:
        sys.exit(f"error: {error}")
    if options.json:
        sys.stdout.write(
            json.dumps({"dataset_id": options.dataset_id, "version": version, "uri": uri}) + "\n"
        )
    else:
        sys.stdout.write(f"dataset {options.dataset_id}, version {version}\n{uri}\n")


if __name__ == "__main__":
    main()
