"""`scripts/crash-points`: tries every point, or those that are asked for, and prints the figures."""

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.crash.faults import KILLS
from tests.crash.sweep import ERRORS, Outcome, Sweep, points, summary, with_recoveries


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 if every point was survived."""
    asked = _parsed(arguments)
    folder = Path(tempfile.mkdtemp(prefix="crash-points-"))
    try:
        sweep = Sweep(folder, asked.lanes)
        outcomes = sweep.run(_wanted(sweep, asked), _tell)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(("", *summary(outcomes))))
    return 1 if any(outcome.problems for outcome in outcomes) else 0


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/crash-points", description=__doc__)
    parser.add_argument("--kinds", choices=("kills", "errors", "recoveries"), nargs="*", default=[])
    parser.add_argument("--sample", type=int, metavar="N", help="so many points of each kind, not all")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(10**6), help="of what is drawn by chance"
    )
    parser.add_argument("--lanes", type=int, default=4, help="services side by side")
    parser.add_argument(
        "--faults", nargs="*", metavar="FAULT", help='one run with these, as "84 kill before", one a start'
    )
    return parser.parse_args(arguments)


def _wanted(sweep: Sweep, asked: argparse.Namespace) -> list[tuple[str, ...]]:
    if asked.faults:
        return [tuple(asked.faults)]
    print(f"seed {asked.seed}")
    calls = sweep.reference()
    kills, errors = points(calls, KILLS), points(calls, ERRORS)
    every = {"kills": kills, "errors": errors, "recoveries": with_recoveries(kills, asked.seed)}
    dice = random.Random(asked.seed)
    tried = []
    for kind in asked.kinds or every:
        found = every[kind]
        tried += dice.sample(found, min(asked.sample, len(found))) if asked.sample else found
    print(f"{len(calls)} calls to the outside; {len(tried)} points")
    return tried


def _tell(outcome: Outcome) -> None:
    if outcome.problems:
        print(f"\n{outcome}\n{outcome.log}", flush=True)
    else:
        print(".", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
