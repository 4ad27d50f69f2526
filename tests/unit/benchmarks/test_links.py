import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks import links
from benchmarks.links import Machine, emulated, missing
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"it needs {missing()}")

KILLED = """
import subprocess
from benchmarks.links import Machine, emulated
with emulated([Machine(cpus=0.5), Machine(latency=0.001)]) as machines:
    sleeping = machines[0].start("sh", "-c", "echo it runs; exec sleep 600", stdout=subprocess.PIPE)
    sleeping.stdout.readline()  # from now on, it is in the machine's namespace and cgroup
    print(sleeping.pid, flush=True)
    sleeping.wait()
"""


def names_of(pid: int) -> list[str]:
    return [name for name in links._names() if links._pid_of(name) == pid]


def is_dead(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_machines_reach_each_other_and_leave_nothing() -> None:
    with emulated([Machine(), Machine(latency=0.02)]) as (first, second):
        code = "import socket; s = socket.create_server(('', 5000)); print(flush=True); s.accept()[0].recv(1)"
        server = second.start(sys.executable, "-c", code, stdout=subprocess.PIPE)
        assert server.stdout
        server.stdout.readline()
        code = (
            "import socket, time; began = time.monotonic(); "
            f"s = socket.create_connection(('{second.address}', 5000)); print(time.monotonic() - began)"
        )
        client = first.start(sys.executable, "-c", code, stdout=subprocess.PIPE)
        output, _ = client.communicate(timeout=PATIENCE)
        assert float(output) >= 0.04  # there and back
        assert first.sent_bytes() > 0
        server.communicate(timeout=PATIENCE)
        assert names_of(os.getpid())
    assert names_of(os.getpid()) == []


def test_a_machine_has_its_share_of_a_cpu() -> None:
    with emulated([Machine(cpus=0.2)]) as [machine]:
        code = (
            "import time\nbegan = time.monotonic()\n"
            "while time.process_time() < 0.3: pass\nprint(time.monotonic() - began)"
        )
        busy = machine.start(sys.executable, "-c", code, stdout=subprocess.PIPE)
        output, _ = busy.communicate(timeout=PATIENCE)
    assert float(output) > 0.3 / 0.2 * 0.6


def test_the_next_start_removes_what_a_killed_owner_has_left() -> None:
    root = Path(links.__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], cwd=root, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout
        sleeping = int(owner.stdout.readline())
        owner.send_signal(signal.SIGKILL)
    assert names_of(owner.pid)
    links.remove_leftovers()
    assert names_of(owner.pid) == []
    deadline = time.monotonic() + PATIENCE
    while not is_dead(sleeping):  # a killed process leaves its cgroup just before it is dead
        assert time.monotonic() < deadline
        time.sleep(0.05)
