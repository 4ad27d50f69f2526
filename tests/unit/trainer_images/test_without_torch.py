"""What a program of another framework takes from the kit, where PyTorch is not installed."""

import json
from pathlib import Path

from tests.unit.trainer_images.support import Launcher

WITHOUT_TORCH = "import sys; sys.modules['torch'] = None  # importing it raises ImportError\n"
PROGRAM = f"""{WITHOUT_TORCH}
from trainer_kit import background, environment, process, storage, termination
from trainer_kit.artifacts import opened, publishing
from trainer_kit.job import Job
from trainer_kit.progress import Lines, Reporter

def train():
    job = Job.from_environment()
    Reporter(Lines()).report(epoch=1)
    with publishing(job.model_uri, {{"job_id": job.job_id}}) as folder:
        (folder / "model").write_text("weights")
    sys.exit(3)

process.run(train)
"""


def test_a_program_reads_its_job_reports_publishes_and_ends(launcher: Launcher, tmp_path: Path) -> None:
    model = tmp_path / "model"
    ended = launcher.run("-c", PROGRAM, JOB_ID="7", TRAINING_DATA_URI="nowhere", MODEL_URI=str(model))
    assert ended == (3, '::progress:: {"epoch": 1}\n', "")
    assert json.loads((model / "manifest.json").read_text())["job_id"] == "7"
