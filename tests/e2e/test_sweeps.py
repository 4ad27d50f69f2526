"""Sweeps with real processes: they search the learning rate of a least-squares fit by gradient descent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support.patience import PATIENCE
from tests.support.server import trainctl
from training_service._generated import training_service_pb2 as pb
from training_service.client import TrainingClient

if TYPE_CHECKING:
    from tests.support.server import Server

# The loss is that of fitting y = 2x. A learning rate above about 0.6 diverges, and a low one hardly learns.
# A slow trial waits until the sweep has decided about its second step. So it cannot end before it is pruned.
TRAINER = """
import json, os, pathlib, time

def await_decision():
    number = None
    while True:
        for line in pathlib.Path("{journal}").read_text().split("\\n")[:-1]:
            event = json.loads(line)
            if event["event"] == "submitted" and event["job"] == int(os.environ["JOB_ID"]):
                number = event["trial"]
            if event["event"] == "reported" and event["trial"] == number and event["points"][-1][0] >= 2:
                if not event["prune"]:
                    return
        time.sleep(0.05)  # even if the trial is pruned: its job is cancelled

rate, weight = float(os.environ["LR"]), 0.0
points = [(x / 10, 2 * x / 10) for x in range(-20, 21)]
for step in range(1, 13):
    weight -= rate * sum(2 * x * (weight * x - y) for x, y in points) / len(points)
    loss = sum((weight * x - y) ** 2 for x, y in points) / len(points)
    print("::progress::", json.dumps({"step": step, "metrics": {"loss": loss}}), flush=True)
    if step == 3 and os.environ["PACE"] == "slow":
        await_decision()
assert loss < 100, "diverged"
"""
ALGORITHM = """
[algorithms.descent]
parameters = {{ LR = {{ type = "float" }}, PACE = {{ choices = ["fast", "slow"] }} }}
[algorithms.descent.process]
command = ["python", "{program}"]
"""


def sweep(server: Server, *arguments: str) -> tuple[list[dict[str, Any]], int, str]:
    """Return the trials that trainctl shows, its exit code, and its output on standard error."""
    with trainctl(server, server.folder, "--json", "sweep", *arguments) as process:
        out, err = process.communicate(timeout=PATIENCE)
        return [json.loads(line) for line in out.splitlines()], process.returncode, err


def start(server: Server) -> None:
    program = server.folder / "descent.py"
    program.write_text(TRAINER.replace("{journal}", str(server.folder / "sweep" / "trials.jsonl")))
    with (server.folder / "config.toml").open("a") as config:
        config.write(ALGORITHM.format(program=program))
    server.start().close()


WHAT = ("--algorithm", "descent", "-d", "1", "--version", "v1", "-m", "loss", "--direction", "minimize")


def test_a_grid_finds_the_learning_rate_that_converges(server: Server) -> None:
    start(server)
    rates = ("-s", "LR=0.01,0.3,5.0", "-p", "PACE=fast", "--method", "grid")
    trials, code, err = sweep(server, *WHAT, *rates, "--every", "0.2", "--to", "sweep.svg")
    assert code == 0, err
    assert [(trial["parameters"]["LR"], trial["state"]) for trial in trials] == [
        (0.3, "complete"),
        (0.01, "complete"),
        (5.0, "failed"),
    ]
    assert trials[0]["value"] < 0.01 < trials[1]["value"]
    assert trials[2]["reason"] == "Rank 0 exited with code 1."
    assert (server.folder / "sweep.svg").stat().st_size > 1000


def test_tpe_with_pruning_stops_slow_learners_and_keeps_the_best(server: Server) -> None:
    start(server)
    (server.folder / "descent.toml").write_text(
        # With this seed, some trials are pruned, in each possible order in which the jobs report.
        'method = "tpe"\nseed = 4\ntrials = 8\nat_once = 2\n[pruning]\nmin_steps = 2\nreduction_factor = 2\n'
    )
    rates = ("-s", "LR=0.001..0.5:log", "-p", "PACE=slow")
    trials, code, err = sweep(server, "descent.toml", *WHAT, *rates, "--folder", "sweep", "--every", "0.2")
    assert code == 0, err
    states = [trial["state"] for trial in trials]
    assert (states[0], len(states), set(states)) == ("complete", 8, {"complete", "pruned"})
    with TrainingClient(server.address) as client:
        jobs = {job.job_id: job.status for job in client.list()}
    for trial in trials:
        outcome = pb.succeed if trial["state"] == "complete" else pb.cancelled
        assert jobs[trial["job_id"]] == outcome
