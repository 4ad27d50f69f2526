"""trainctl as a process: signals, pipes, a real terminal, and a service that restarts."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import re
import signal
import struct
import termios
from typing import TYPE_CHECKING

from tests.support.patience import PATIENCE
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl

END = "a text that never appears"
SUBMIT = ("submit", "bert", "--dataset", "questions", "--version", "3f2a")


class Terminal:
    """The far end of a pseudo-terminal of 100 columns. `shown` is all of its output."""

    def __init__(self) -> None:
        self.far, self.near = pty.openpty()
        fcntl.ioctl(self.near, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.shown = ""
        # A read may end within a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def until(self, text: str) -> None:
        """Read until the text appears or the output ends."""
        while text not in self.shown:
            try:
                read = os.read(self.far, 65536)
            except OSError:  # EIO: the last process has closed its end.
                break
            self.shown += self._decoder.decode(read)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.far)


def test_an_unreachable_service_is_reported_with_an_exit_code_of_its_own(
    trainctl_at: Callable[[str], Trainctl], dead_address: str
) -> None:
    result = trainctl_at(dead_address).run("list")
    assert (result.returncode, result.stdout) == (4, "")
    assert result.stderr.startswith(
        f"trainctl: cannot reach the training service at {dead_address}: Connection refused. Is it running?"
    )
    assert result.stderr.count("\n") == 1


def test_watch_in_a_pipe_prints_each_change_and_survives_a_restart_of_the_service(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    training.set_job(1, status=pb.running)
    with trainctl.process("watch", "1") as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == "job 1: running\n"
        training.set_job(1, progress=pb.Progress(step=1, total_steps=2, metrics={"loss": 0.5}))
        assert process.stdout.readline() == "job 1: running, step 1/2, loss 0.5\n"
        training.die()
        assert "retrying" in process.stderr.readline()
        training.restart()
        training.set_job(1, status=pb.cancelled)
        assert process.stdout.readline() == "job 1: cancelled, step 1/2, loss 0.5\n"
        assert process.wait(timeout=PATIENCE) == 5


def test_ctrl_c_detaches_and_prints_how_to_follow_again(training: ServerInThread, trainctl: Trainctl) -> None:
    with trainctl.process(*SUBMIT, "--follow") as process:
        assert process.stdout
        assert [process.stdout.readline() for _ in range(2)] == ["1\n", "job 1: queuing, next in the queue\n"]
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert complaint == "trainctl: detached; job 1 goes on. To follow it again: trainctl watch 1\n"
    assert [type(request) for request in training.service.requests] == [
        pb.TrainRequest,
        pb.WatchTrainingRequest,
    ]


def test_the_suggested_command_names_the_same_service(
    training: ServerInThread, trainctl_at: Callable[[str], Trainctl]
) -> None:
    training.set_job(1, status=pb.running)
    with trainctl_at("elsewhere.invalid:1").process("watch", "1", "-a", training.address) as process:
        assert process.stdout
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert f"trainctl -a {training.address} watch 1" in process.communicate(timeout=PATIENCE)[1]


def test_ctrl_c_ends_a_followed_log_silently(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1, status=pb.running)
    training.print(1, "epoch 1\n")
    with trainctl.process("logs", "1", "-f") as process:
        assert process.stdout
        assert process.stdout.readline() == "epoch 1\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=PATIENCE) == ("", "")
        assert process.returncode == 130


def test_a_closed_pipe_ends_trainctl_silently(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1, status=pb.running)
    with trainctl.process("watch", "1", "--json") as process:
        assert process.stdout
        assert process.stderr
        assert json.loads(process.stdout.readline())["status"] == "running"
        process.stdout.close()
        training.set_job(1, status=pb.succeed)
        assert process.wait(timeout=PATIENCE) == 141
        assert process.stderr.read() == ""


def test_characters_that_the_locale_lacks_are_escaped(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1, metadata=pb.TrainingJobMetadata(name="große 🚀"))
    with trainctl.process("list", env={"PYTHONIOENCODING": "ascii"}) as process:
        out, complaint = process.communicate(timeout=PATIENCE)
    assert (process.returncode, complaint) == (0, "")
    assert r"gro\xdfe \U0001f680" in out


def test_a_terminal_shows_live_progress_and_keeps_the_last_view(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    training.set_job(1, status=pb.running, metadata=pb.TrainingJobMetadata(algorithm="bert"))
    with (
        Terminal() as terminal,
        trainctl.process(
            "watch", "1", stdout=terminal.near, stderr=terminal.near, env={"TERM": "xterm-256color"}
        ) as process,
    ):
        os.close(terminal.near)
        terminal.until("running")
        training.set_job(1, progress=pb.Progress(step=1, total_steps=2, metrics={"loss": 0.5}))
        terminal.until("step 1/2")
        terminal.until("loss 0.5")
        training.set_job(1, status=pb.succeed, model_uri="file:///models/1")
        terminal.until(END)
        assert process.wait(timeout=PATIENCE) == 0
    last = terminal.shown.rpartition("\x1b[2K")[2]
    assert re.search("succeed.*step 1/2.*file:///models/1", last, re.DOTALL)
    assert "\x1b[?25h" in last, "the cursor is visible again"


def test_ctrl_c_on_a_terminal_prints_how_to_follow_again(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    training.set_job(1, status=pb.running)
    with (
        Terminal() as terminal,
        trainctl.process(
            "watch", "1", stdout=terminal.near, stderr=terminal.near, env={"TERM": "xterm"}
        ) as process,
    ):
        os.close(terminal.near)
        terminal.until("running")
        process.send_signal(signal.SIGINT)
        terminal.until(END)
        assert process.wait(timeout=PATIENCE) == 130, terminal.shown
    assert "job 1 goes on" in terminal.shown
    assert "Traceback" not in terminal.shown
