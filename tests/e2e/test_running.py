"""trainctl run, as a new user tries it: a script of one's own, one command, no configuration."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE
from tests.support.server import Server, trainctl

TRAIN = """
import os, sys
print("rank", os.environ["RANK"], sys.argv[1:], os.environ.get("MODE"), flush=True)
sys.exit(int(os.environ.get("CODE", "0")))
"""


class Project:
    """A folder of a user, with a service."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.client = server.start()
        (folder / "data").mkdir(parents=True)
        (folder / "train.py").write_text(TRAIN)
        (folder / ".gitignore").write_text("*.log\n")
        (folder / "secret.log").write_text("secret")

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return trainctl(self.server, self.folder, "run", *arguments)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=PATIENCE)
            return process.returncode, out, err


@pytest.fixture
def project(server: Server, tmp_path: Path) -> Project:
    return Project(server, tmp_path / "project")


def test_a_script_runs_with_its_arguments_and_its_outcome_is_the_exit_code(project: Project) -> None:
    code, out, err = project.run("-n", "2", "-e", "MODE=fast", "train.py", "--", "--lr", "0.1")
    assert (code, sorted(out.splitlines())) == (
        0,
        ["[0] rank 0 ['--lr', '0.1'] fast", "[1] rank 1 ['--lr', '0.1'] fast"],
    )
    assert "trainctl: job 1: 2 files of" in err
    (project.folder / "train.py").write_text(TRAIN.replace("rank", "Rank", 1))
    code, out, _ = project.run(str(project.folder / "train.py"), "a b", "$HOME", "--address")
    assert (code, out) == (0, "Rank 0 ['a b', '$HOME', '--address'] None\n")
    code, _, err = project.run("-q", "-e", "CODE=3", "train.py")
    assert code == 1
    assert "file" not in err.splitlines()[0], "--quiet leaves out all but errors"
    assert "Rank 0 exited with code 3." in err
    assert not list(project.server.folder.rglob("programs/**/secret*"))
    code, out, _ = project.run("--detach", "python", "-c", "print(open('.gitignore').read())")
    assert (code, out) == (0, "4\n")
    assert project.client.wait(4, timeout=PATIENCE).has_model is not None
    assert "".join(chunk.text for chunk in project.client.logs(4)) == "*.log\n\n"


def test_a_further_attempt_is_announced_before_its_output(project: Project) -> None:
    program = "echo attempt $JOB_ATTEMPT; [ $JOB_ATTEMPT = 2 ] || kill -9 $$"
    code, out, err = project.run("--backoff", "0.1s", "sh", "-c", program)
    assert (code, out) == (0, "attempt 1\nattempt 2\n")
    assert "trainctl: job 1: attempt 2; trainctl describe 1 says why" in err


def test_ctrl_c_leaves_the_job_running(project: Project) -> None:
    (project.folder / "train.py").write_text("import time; print('begun', flush=True); time.sleep(600)")
    with project.start("train.py") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "detached; job 1 goes on" in err
    assert project.client.status(1).message.startswith("Training on 1 instance")


def test_what_cannot_be_sent_is_said_before_the_service_is_asked(project: Project) -> None:
    code, _, err = project.run("other.py")
    assert (code, "other.py is not among the files of" in err) == (2, True)
    (project.folder / "link").symlink_to("/etc/passwd")
    code, _, err = project.run("train.py")
    assert (code, "link is a link to /etc/passwd, which is not in" in err) == (2, True)
    (project.folder / "link").unlink()
    with (project.folder / "model.bin").open("wb") as file:
        file.truncate(2 << 30)
    code, _, err = project.run("train.py")
    assert (code, "The largest are model.bin (2.15 GB)" in err) == (2, True)
    assert "allow more with --max-size" in err
    (project.folder / "model.bin").unlink()
    for option, value, problem in (
        ("--max-size", "10", "more than the 10 bytes that are allowed"),
        ("--max-files", "1", "allow more with --max-files"),
        ("--max-size", "huge", "'huge' is not a size"),
    ):
        code, _, err = project.run(option, value, "train.py")
        assert (code, problem in " ".join(err.replace("│", " ").split())) == (2, True), err


def test_a_queued_program_survives_a_restart_of_the_service(project: Project) -> None:
    assert project.run("--detach", "train.py")[0] == 0
    project.server.end(signal.SIGKILL)
    project.client.close()
    with project.server.start() as client:
        client.wait(1, timeout=PATIENCE)
        assert "".join(chunk.text for chunk in client.logs(1)) == "rank 0 [] None\n"
