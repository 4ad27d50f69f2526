"""Emulated machines: network namespaces with links of a given bandwidth and latency, and a share of a CPU.

Each rank of a benchmark runs in its own namespace, joined by a veth pair to a bridge:

    with emulated([Machine(), Machine(rate="100mbit", cpus=0.5)]) as machines:
        machines[0].start("iperf3", "--server")

How exact this is: the kernel's `tbf` limits the rate at which a machine sends and, at the bridge, the rate at
which it receives, so the limit holds for any program. Not every kernel has netem, so a program, `relay.py`,
adds the latency. Its docstring says how exact the latency is. The cgroup v1 controller enforces CPU quotas.
Emulation needs root.

The names of namespaces and cgroups contain the pid of their owner: the process that made them. Each call of
`emulated` first removes the namespaces and cgroups whose owners no longer run, for example after a kill -9.
"""

import contextlib
import errno
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PREFIX = "emu"
CGROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD = 10_000
"""The period of CPU quotas, in microseconds.

With the kernel's default, which is ten times as long, a rank that has used up its quota would pause for
longer, and the other ranks would wait for it.
"""
_OWNED = re.compile(rf"{PREFIX}(?P<pid>\d+)-[\da-z]+$")
INTERFACE = "link0"


@dataclass(frozen=True)
class Machine:
    """An emulated machine."""

    rate: str = "1gbit"
    """The rate of the machine's link, in each direction, in the notation of `tc`."""
    cpus: float | None = None
    """The number of CPUs that all processes in the machine together may use; None: no limit."""
    latency: float = 0
    """The latency that the machine's link adds in each direction, in seconds."""


@dataclass
class Running:
    """A machine that is up."""

    namespace: str
    address: str
    bridge: str
    """The namespace of the bridge."""
    port: str
    """The machine's port at the bridge."""
    cgroup: Path | None

    def start(
        self, *command: str, environment: Mapping[str, str] | None = None, **options: object
    ) -> subprocess.Popen[str]:
        """Start a program in the machine. The caller ends it, or `emulated` kills it at the end."""
        inside = ("ip", "netns", "exec", self.namespace, *command)
        if self.cgroup:
            # The shell joins the cgroup before it becomes the program, so all threads of the program are
            # in the cgroup.
            procs = self.cgroup / "cgroup.procs"
            inside = ("sh", "-c", 'echo $$ >"$0" && exec "$@"', str(procs), *inside)
        every = {**os.environ, **(environment or {})}
        return subprocess.Popen(inside, env=every, text=True, **options)  # type: ignore[call-overload, no-any-return]

    def sent_bytes(self) -> int:
        """Return the bytes that the machine has sent, with the headers of packets."""
        path = f"/sys/class/net/{INTERFACE}/statistics/tx_bytes"
        output = subprocess.check_output(("ip", "netns", "exec", self.namespace, "cat", path), text=True)
        return int(output)

    def limit(self, rate: str) -> None:
        """Change the rate of the link, in each direction."""
        _limit(self.namespace, self.bridge, self.port, rate)

    def cut(self) -> None:
        """Make the link lose all frames from now on, without an error at either end."""
        _run("ip", "-n", self.bridge, "link", "set", self.port, "nomaster")


def missing() -> str:
    """Return what this machine lacks to emulate machines; empty if it lacks nothing."""
    if os.geteuid() != 0:
        return "root"
    if lacking := [name for name in ("ip", "tc") if not shutil.which(name)]:
        return f"the command {lacking[0]} of iproute2"
    if closed := [path for path in (Path("/dev/net/tun"), CGROUPS) if not os.access(path, os.W_OK)]:
        return str(closed[0])
    return "" if subprocess.run(("unshare", "--net", "true"), check=False).returncode == 0 else "namespaces"


@contextmanager
def emulated(machines: Sequence[Machine]) -> Iterator[list[Running]]:
    """Start machines on one bridge, and remove them at the end of the block.

    The addresses are 192.0.2.1, 192.0.2.2 and so on, which are reserved for documentation. Raises
    CalledProcessError or OSError if the kernel refuses something.
    """
    remove_leftovers()
    owner = f"{PREFIX}{os.getpid()}"
    relays: list[subprocess.Popen[str]] = []
    try:
        bridge = _namespace(f"{owner}-b")
        _run("ip", "-n", bridge, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", bridge, "link", "set", "bridge", "up")
        yield [
            _machine(owner, bridge, number, machine, relays)
            for number, machine in enumerate(machines, start=1)
        ]
    finally:
        _remove(os.getpid())
        for relay in relays:
            relay.communicate()


def place(rank: int, machines: Sequence[Running]) -> dict[str, str]:
    """Return the environment variables by which the process of this rank joins its group. Each machine has
    one rank.
    """
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(machines)),
        "MASTER_ADDR": machines[0].address,
        "MASTER_PORT": "29500",
        "GLOO_SOCKET_IFNAME": INTERFACE,
        "OMP_NUM_THREADS": "1",
    }


def remove_leftovers() -> None:
    """Remove the network namespaces and cgroups that were made by processes that no longer run."""
    for pid in {_pid_of(name) for name in _names()}:
        if not Path(f"/proc/{pid}").exists():
            _remove(pid)


def _machine(
    owner: str, bridge: str, number: int, machine: Machine, relays: list[subprocess.Popen[str]]
) -> Running:
    name, port, address = _namespace(f"{owner}-{number}"), f"port{number}", f"192.0.2.{number}"
    if machine.latency:
        relays.append(_relay(bridge, port, machine.latency))
        _run("ip", "-n", bridge, "link", "set", f"{port}-far", "netns", name)
        _run("ip", "-n", name, "link", "set", f"{port}-far", "name", INTERFACE)
    else:
        peer = ("peer", "name", INTERFACE, "netns", name)
        _run("ip", "-n", bridge, "link", "add", port, "type", "veth", *peer)
    _run("ip", "-n", bridge, "link", "set", port, "master", "bridge", "up")
    _run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", INTERFACE)
    _run("ip", "-n", name, "link", "set", "lo", "up")
    _run("ip", "-n", name, "link", "set", INTERFACE, "up")
    _limit(name, bridge, port, machine.rate)
    return Running(name, address, bridge, port, _cgroup(name, machine.cpus))


def _limit(machine: str, bridge: str, port: str, rate: str) -> None:
    for namespace, device in ((machine, INTERFACE), (bridge, port)):
        _run(
            *("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root"),
            *("tbf", "rate", rate, "burst", "32kb", "latency", "100ms"),
        )


def _relay(bridge: str, port: str, latency: float) -> subprocess.Popen[str]:
    """Start a relay between two new devices, `port` and a second one, in the bridge's namespace.

    `_remove` ends it.
    """
    command = (sys.executable, "-m", "benchmarks.relay", str(latency), port, f"{port}-far")
    relay = subprocess.Popen(("ip", "netns", "exec", bridge, *command), stdout=subprocess.PIPE, text=True)
    assert relay.stdout
    if relay.stdout.readline() != "ready\n":
        raise OSError(f"the relay at {port} ended with {relay.wait()}")
    return relay


def _namespace(name: str) -> str:
    _run("ip", "netns", "add", name)
    return name


def _cgroup(name: str, cpus: float | None) -> Path | None:
    if cpus is None:
        return None
    cgroup = CGROUPS / name
    cgroup.mkdir()
    (cgroup / "cpu.cfs_period_us").write_text(str(PERIOD))
    (cgroup / "cpu.cfs_quota_us").write_text(str(round(cpus * PERIOD)))
    return cgroup


def _names() -> list[str]:
    namespaces = Path("/var/run/netns")
    found = [*namespaces.iterdir()] if namespaces.is_dir() else []
    found += [*CGROUPS.iterdir()] if CGROUPS.is_dir() else []
    return [path.name for path in found if _OWNED.fullmatch(path.name)]


def _pid_of(name: str) -> int:
    match = _OWNED.fullmatch(name)
    assert match
    return int(match["pid"])


def _remove(pid: int) -> None:
    """Remove the namespaces and cgroups of the owner with this pid, and end the processes in them.

    A second call does nothing.
    """
    for name in {name for name in _names() if _pid_of(name) == pid}:
        if (Path("/var/run/netns") / name).exists():
            listed = subprocess.run(
                ("ip", "netns", "pids", name), capture_output=True, text=True, check=False
            )
            for process in listed.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), 9)
            subprocess.run(("ip", "netns", "del", name), check=False)
        _remove_cgroup(CGROUPS / name)


def _remove_cgroup(cgroup: Path) -> None:
    while True:
        try:
            cgroup.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            # A killed process leaves its cgroup some time after the signal: on a busy machine, seconds.
            with contextlib.suppress(FileNotFoundError):
                for process in (cgroup / "cgroup.procs").read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(process), 9)
            time.sleep(0.02)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
