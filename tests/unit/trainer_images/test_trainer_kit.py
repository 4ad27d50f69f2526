"""The parts of the kit that work without PyTorch, for programs of other frameworks."""

import json
from pathlib import Path

from tests.support.trainers.launcher import Launcher

WITHOUT_TORCH = "import sys; sys.modules['torch'] = None  # importing it raises ImportError\n"
PROGRAM = f"""{WITHOUT_TORCH}
from trainer_kit import background, environment, process, storage, termination
from trainer_kit.artifacts import opened, publishing
from trainer_kit.job import Job
from trainer_kit.progress import Reporter
from trainer_kit.report_sinks import StdoutSink

def train():
    job = Job.from_environment()
    Reporter(StdoutSink()).report(epoch=1)
    with publishing(job.model_uri, {{"job_id": job.job_id}}) as folder:
        (folder / "model").write_text("weights")
    sys.exit(3)

process.run(train)
"""


CHECK = f"""{WITHOUT_TORCH}
from language_model.check import main
sys.exit(main())
"""


def test_the_check_of_the_language_model_needs_no_pytorch(launcher: Launcher) -> None:
    assert launcher.run("-c", CHECK, HEADS="4", WIDTH="64") == (0, "", "")
    assert launcher.run("-c", CHECK, HEADS="5", WIDTH="64") == (
        65,
        "",
        "WIDTH 64 is not a multiple of HEADS 5\n",
    )


def test_a_program_reads_its_job_reports_and_publishes(launcher: Launcher, tmp_path: Path) -> None:
    model = tmp_path / "model"
    ended = launcher.run("-c", PROGRAM, JOB_ID="7", TRAINING_DATA_URI="nowhere", MODEL_URI=str(model))
    assert ended == (3, '::progress:: {"epoch": 1}\n', "")
    assert json.loads((model / "manifest.json").read_text())["job_id"] == "7"
