"""MPI over instances that share only environment variables: no ssh and no files."""

import re
import signal
import socket
import subprocess
from pathlib import Path

import psutil
import pytest
from trainer_kit.mpi.agent import Daemon, daemon_of

from tests.support.frameworks import ROOT
from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from tests.support.trainers.frameworks import (
    KILLED,
    Trained,
    all_succeed,
    check_resumption,
    saving,
)
from tests.support.trainers.launcher import Launcher, end_of, first_line_of

PYTHON = str(ROOT / ".venv" / "frameworks" / "mpi_questions" / "bin" / "python")
MPI4PY = (PYTHON, "-m", "mpi4py")


class Group:
    """The instances on one machine, started as by the service."""

    def __init__(self, launcher: Launcher, instances: int, **variables: str) -> None:
        self.port = free_port()
        self._instances = instances
        self._launcher = launcher
        self._variables = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "MPI_INSTANCES": str(instances),
            "GROUP_TOKEN": "a secret",
            **variables,
        }

    def start(self, instance: int, *command: str, **variables: str) -> subprocess.Popen[str]:
        environment = {**self._variables, "MPI_INSTANCE": str(instance), **variables}
        return self._launcher.start("-m", "trainer_kit.mpi", *command, **environment)

    def start_all(self, *command: str) -> list[subprocess.Popen[str]]:
        return [self.start(instance, *command) for instance in range(self._instances)]


def program(body: str) -> tuple[str, ...]:
    """Return a command that runs this code in every process."""
    return *MPI4PY, "-c", f"import os, time\nfrom mpi4py import MPI\nworld = MPI.COMM_WORLD\n{body}"


PRINT_AND_WAIT = program("world.Barrier()\nif world.rank == 0: print('here', flush=True)\ntime.sleep(1000)")


@pytest.mark.parametrize(("instances", "slots"), [(1, 1), (2, 2), (3, 1)])
def test_a_group_of_any_size_learns_to_classify(
    mpi: Launcher, questions_uri: str, tmp_path: Path, instances: int, slots: int
) -> None:
    model = tmp_path / "model"
    group = Group(
        mpi, instances,
        MPI_SLOTS=str(slots), TRAINING_DATA_URI=questions_uri, MODEL_URI=str(model), EPOCHS="6",
    )  # fmt: skip
    processes = group.start_all(*MPI4PY, "-m", "mpi_questions.train")
    trained = Trained(model, [end_of(process) for process in processes])

    assert [end.code for end in trained.ends] == [0] * instances, trained.ends
    assert len(trained.losses) == 6
    assert trained.losses[-1] < trained.losses[0] / 2
    assert trained.accuracy >= 0.8
    assert [end.stdout for end in trained.ends[1:]] == [""] * (instances - 1)


def test_a_killed_rank_ends_all_and_the_next_attempt_resumes(
    mpi: Launcher, questions_uri: str, tmp_path: Path
) -> None:
    places = {"TRAINING_DATA_URI": questions_uri, "MODEL_URI": str(tmp_path / "model"), "EPOCHS": "2"}
    saved, variables = tmp_path / "checkpoints", {**places, "MPI_SLOTS": "2"}
    killed = saving(saved, 1, KILL_AT="38", KILL_RANK="3")
    group = Group(mpi, 2, **variables, **killed).start_all(*MPI4PY, KILLED, "mpi_questions.train")
    master, worker = (end_of(process) for process in group)
    assert (master.code, worker.code) == (128 + signal.SIGKILL, 0)

    again = Group(mpi, 2, **variables, **saving(saved, 2)).start_all(*MPI4PY, "-m", "mpi_questions.train")
    check_resumption(master, all_succeed(again)[0], killed_at=38)


def test_each_instance_hosts_its_own_processes_and_all_are_one_world(mpi: Launcher) -> None:
    places = "world.gather((world.rank, world.size, os.environ['MPI_INSTANCE']))"
    body = f"places = {places}\nif world.rank == 0: print(places)"
    master, worker = Group(mpi, 2, MPI_SLOTS="2").start_all(*program(body))
    assert end_of(worker) == (0, "", "")
    ended = end_of(master)
    assert (ended.code, ended.stdout) == (0, "[(0, 4, '0'), (1, 4, '0'), (2, 4, '1'), (3, 4, '1')]\n")


def test_a_dedicated_launcher_hosts_no_process(mpi: Launcher) -> None:
    group = Group(mpi, 2, MPI_LAUNCHER_SLOTS="0")
    master, worker = group.start_all(*program("print(world.size, os.environ['MPI_INSTANCE'])"))
    assert end_of(worker) == (0, "", "")
    assert end_of(master)[:2] == (0, "1 1\n")


def test_the_launcher_exits_with_the_code_of_a_failed_process(mpi: Launcher) -> None:
    body = "world.Barrier()\nif world.rank == 1: os._exit(7)\nworld.Barrier()"
    master, worker = Group(mpi, 2).start_all(*program(body))
    assert end_of(master).code == 7
    assert end_of(worker).code == 0


def test_an_exception_in_one_process_ends_all(mpi: Launcher) -> None:
    master, worker = Group(mpi, 2).start_all(*program("if world.rank == 1: 1 / 0\nworld.Barrier()"))
    ended = end_of(master)
    assert ended.code == 1
    assert "ZeroDivisionError" in ended.stdout + ended.stderr
    assert end_of(worker).code == 0


def test_a_killed_worker_ends_the_launcher(mpi: Launcher) -> None:
    master, worker = Group(mpi, 2).start_all(*PRINT_AND_WAIT)
    assert first_line_of(master) == "here\n"
    left = psutil.Process(worker.pid).children(recursive=True)
    worker.kill()
    assert end_of(master).code == 1
    _, alive = psutil.wait_procs(left, PATIENCE)
    assert not alive


def test_a_killed_launcher_ends_the_workers_and_their_processes(mpi: Launcher) -> None:
    master, worker = Group(mpi, 2).start_all(*PRINT_AND_WAIT)
    assert first_line_of(master) == "here\n"
    left = psutil.Process(master.pid).children(recursive=True)
    master.kill()
    ended = end_of(worker)
    assert ended.code == 1
    assert ended.stderr.startswith("error: lost the launcher at 127.0.0.1")
    _, alive = psutil.wait_procs(left, PATIENCE)
    assert not alive


def test_sigterm_to_the_launcher_ends_all(mpi: Launcher) -> None:
    master, worker = Group(mpi, 2).start_all(*PRINT_AND_WAIT)
    assert first_line_of(master) == "here\n"
    master.terminate()
    assert end_of(master).code == 143
    assert end_of(worker).code == 0


def test_sigterm_to_a_worker_ends_all(mpi: Launcher) -> None:
    master, worker = Group(mpi, 2).start_all(*PRINT_AND_WAIT)
    assert first_line_of(master) == "here\n"
    worker.terminate()
    assert end_of(worker).code == 143
    assert end_of(master).code != 0


def test_an_instance_with_another_token_is_refused_and_counts_as_missing(mpi: Launcher) -> None:
    group = Group(mpi, 2)
    master = group.start(0, *program("if world.rank == 0: print(world.size)"))
    refused = end_of(group.start(1, *program(""), GROUP_TOKEN="a guess"))
    assert refused.code == 1
    assert refused.stderr.startswith(
        f"error: could not authenticate the launcher at 127.0.0.1:{group.port}: "
    )
    # If the refused instance counted, the launcher would run mpirun without it, and fail.
    worker = group.start(1, *program(""))
    ended = end_of(master)
    assert (ended.code, ended.stdout) == (0, "2\n")
    assert end_of(worker).code == 0


def test_a_missing_instance_is_named(mpi: Launcher) -> None:
    # The launcher hosts no process: on a busy machine, its own host could be missing, too.
    group = Group(mpi, 2, MPI_LAUNCHER_SLOTS="0", GROUP_TIMEOUT="1")
    ended = end_of(group.start(0, *program("")))
    assert ended.code == 1
    assert ended.stderr == (
        f"error: 1 of 2 instances did not connect to 127.0.0.1:{group.port} within 1 s: instances 1\n"
    )


def test_a_worker_without_a_launcher_gives_up(mpi: Launcher) -> None:
    group = Group(mpi, 2, GROUP_TIMEOUT="1")
    ended = end_of(group.start(1, *program("")))
    assert ended.code == 1
    assert ended.stderr.startswith(
        f"error: could not reach the master at 127.0.0.1:{group.port} within 1 s: "
    )


@pytest.mark.parametrize(
    ("variable", "value"), [("GROUP_TOKEN", ""), ("MPI_INSTANCE", "2"), ("MPI_SLOTS", "0")]
)
def test_an_invalid_variable_is_named(mpi: Launcher, variable: str, value: str) -> None:
    ended = end_of(Group(mpi, 2).start(0, *program(""), **{variable: value}))
    assert ended.code == 1
    assert re.fullmatch(f"error: {variable} .*\n", ended.stderr)


@pytest.mark.parametrize(
    ("command", "daemon"),
    [
        # The user's shell is bash, and Open MPI is relocated.
        (
            [
                "OPAL_PREFIX=/x ; export OPAL_PREFIX;  PATH=/x/bin:$PATH ; export PATH ;  /x/bin/orted",
                '"m[1:0-2]"',
            ],
            Daemon(["m[1:0-2]"], relocated=True),
        ),
        # The user's shell is sh, and Open MPI is Debian's.
        (
            ["( test ! -r ./.profile || . ./.profile;  orted", "-mca", "ess", '"env"', ")"],
            Daemon(["-mca", "ess", "env"], relocated=False),
        ),
    ],
)
def test_a_daemon_is_parsed_from_a_shell_command(command: list[str], daemon: Daemon) -> None:
    assert daemon_of(command) == daemon


def test_connections_without_the_token_have_no_effect(mpi: Launcher) -> None:
    group = Group(mpi, 2)
    master = group.start(0, *program("if world.rank == 0: print(world.size)"))
    strangers = [reach(group.port) for _ in range(4)]
    for stranger, rubbish in zip(strangers, RUBBISH, strict=False):
        send_in_full_or_until_refused(stranger, rubbish)
    worker = group.start(1, *program(""))
    ended = end_of(master)
    assert (ended.code, ended.stdout) == (0, "2\n")
    assert end_of(worker) == (0, "", "")
    for stranger in strangers:
        stranger.close()


RUBBISH = [b"", b"\n\n\n", b"GET / HTTP/1.1\r\n\r\n", b"x" * 4_000_000]


def reach(port: int) -> socket.socket:
    """Connect as soon as the port is open."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            continue


def send_in_full_or_until_refused(stranger: socket.socket, rubbish: bytes) -> None:
    """Send everything, or until the other side closes the connection."""
    try:
        stranger.sendall(rubbish)
    except OSError:
        assert len(rubbish) > 1_000_000  # only the long one is cut short


@pytest.mark.parametrize(
    ("command", "arguments", "relocated"),
    [
        ("orted -mca ess env", ["-mca", "ess", "env"], False),
        ("OPAL_PREFIX=/v ; export OPAL_PREFIX; /v/bin/orted -mca a '1 2'", ["-mca", "a", "1 2"], True),
        # The user's shell is sh.
        ("( test ! -r ./.profile || . ./.profile; orted -mca ess env )", ["-mca", "ess", "env"], False),
    ],
)
def test_the_daemon_is_found_in_a_shell_command(command: str, arguments: list[str], relocated: bool) -> None:
    assert daemon_of(command.split(" ")) == Daemon(arguments, relocated)
