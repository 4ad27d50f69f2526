"""Ends of training processes: their exit codes, messages and delays."""

import signal

import pytest

from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from tests.support.trainers.launcher import Launcher, end_of, first_line_of

KIT = "import sys, threading, time; from trainer_kit import process, errors;"
PRINT_AND_WAIT = f"{KIT} process.main(lambda group: (print('here'), time.sleep(600)))"


def code(body: str) -> tuple[str, str]:
    """Return arguments that run a training function with this body."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return "-c", f"{KIT}\ndef train(group):\n{lines}\nprocess.main(train)"


@pytest.mark.parametrize(
    ("body", "exit_code", "stdout", "stderr"),
    [
        ("print('done', end='')", 0, "done", ""),
        ("raise errors.DataError('no data')", 1, "", "error: no data\n"),
        ("sys.exit(5)", 5, "", ""),
        ("sys.exit('enough')", 1, "", "enough\n"),
    ],
)
def test_the_result_of_training_is_the_exit_code(
    launcher: Launcher, body: str, exit_code: int, stdout: str, stderr: str
) -> None:
    assert launcher.run(*code(body)) == (exit_code, stdout, stderr)


def test_an_exception_gives_its_traceback_and_exit_code_1(launcher: Launcher) -> None:
    ended = launcher.run(*code("raise KeyError('lost')"))
    assert ended.code == 1
    assert ended.stderr.startswith("Traceback (most recent call last):")
    assert ended.stderr.endswith("KeyError: 'lost'\n")


def test_an_invalid_parameter_is_reported_in_one_line(launcher: Launcher) -> None:
    addresses = {"TRAINING_DATA_URI": "nowhere", "MODEL_URI": "nowhere"}
    ended = launcher.run("-m", "intent_classification.train", EPOCHS="many", **addresses)
    assert ended == (1, "", "error: EPOCHS must be a whole number from 1 to 10000, but is 'many'\n")


@pytest.mark.parametrize(("signum", "exit_code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_process_cleanly(launcher: Launcher, signum: int, exit_code: int) -> None:
    process = launcher.start("-c", PRINT_AND_WAIT)
    assert first_line_of(process) == "here\n"
    process.send_signal(signum)
    assert end_of(process, PATIENCE) == (exit_code, "", "")


def test_a_signal_lets_training_code_clean_up(launcher: Launcher) -> None:
    # On a busy machine, the clean-up may take longer than the default of the grace period.
    patient = f"from trainer_kit import termination\ntermination.listen.__defaults__ = ({PATIENCE},)\n"
    _, training = code("try:\n    print('here')\n    time.sleep(600)\nfinally:\n    print('tidy')")
    process = launcher.start("-c", patient + training)
    assert first_line_of(process) == "here\n"
    process.terminate()
    assert end_of(process, PATIENCE) == (143, "tidy\n", "")


def test_sigterm_ends_a_process_that_waits_for_its_master(launcher: Launcher) -> None:
    process = launcher.start(
        "-c", f"{KIT}\nprint('here', flush=True)\nprocess.main(print)",
        WORLD_SIZE="2", RANK="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
    )  # fmt: skip
    assert first_line_of(process) == "here\n"
    process.terminate()
    assert end_of(process, PATIENCE).code in (143, -signal.SIGTERM)


def test_sigterm_ends_a_process_that_is_stuck_in_an_exchange_with_a_silent_peer(launcher: Launcher) -> None:
    # The timer prints when the main thread has long been in the exchange.
    body = (
        "if group.rank == 0:\n"
        "    threading.Timer(0.5, print, ['here']).start()\n"
        "    group.total(1)\n"
        "time.sleep(600)"
    )
    master, worker = launcher.start_group(2, *code(body))
    assert first_line_of(master) == "here\n"
    master.terminate()
    assert end_of(master, PATIENCE) == (143, "", "")
    worker.kill()


def test_a_rank_that_fails_ends_at_once_and_the_others_do_not_hang(launcher: Launcher) -> None:
    body = "group.total(1)\nif group.rank == 1: raise KeyError('lost')\ngroup.total(1)"
    master, worker = launcher.start_group(2, *code(body))
    failed, left = end_of(worker), end_of(master, PATIENCE)
    assert failed.code == left.code == 1
    assert "KeyError: 'lost'" in failed.stderr
    assert left.stderr.startswith("Traceback")


def test_a_process_whose_peers_died_after_the_last_exchange_still_succeeds(launcher: Launcher) -> None:
    body = "group.total(1)\nprint('here')\nif group.rank == 1: time.sleep(600)\nsys.stdin.readline()"
    master, worker = launcher.start_group(2, *code(body))
    assert first_line_of(worker) == "here\n"
    worker.kill()
    worker.wait()
    assert end_of(master, PATIENCE).code == 0


def test_a_missing_master_is_reported_with_address_and_time(launcher: Launcher) -> None:
    port = str(free_port())
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GROUP_TIMEOUT": "1"}
    worker = launcher.start(*code("pass"), RANK="1", **group)
    ended = end_of(worker)
    assert ended.code == 1
    assert ended.stderr.startswith(f"error: could not reach the master at 127.0.0.1:{port} within 1 s:")


def test_missing_workers_are_reported(launcher: Launcher) -> None:
    port = str(free_port())
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GROUP_TIMEOUT": "1"}
    # On a busy machine, PyTorch may report its own time-out late.
    patient = f"from trainer_kit import rendezvous\nrendezvous.MARGIN = {PATIENCE}\n{code('pass')[1]}"
    ended = launcher.run("-c", patient, RANK="0", **group)
    assert ended.code == 1
    assert ended.stderr.startswith(f"error: process 0 of 2 could not join its group at 127.0.0.1:{port}")
    assert "1/2 clients joined" in ended.stderr
