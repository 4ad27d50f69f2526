"""A user's folder and command, and the output of the command, which is the same on every engine."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from job_tracker.admission.resolution import Resolver
from job_tracker.backends.registry import BackendPlugin
from job_tracker.catalog import FixedCatalog
from job_tracker.catalog.groups import Composition
from job_tracker.domain import naming
from job_tracker.domain.group import InstanceOptions
from job_tracker.domain.job import Job
from job_tracker.domain.job_spec import Program
from tests.support.jobs import job_of, spec

FILES = {
    "train.py": b"""
import json, os, pathlib, sys
home = pathlib.Path(os.environ["HOME"])
more = pathlib.Path("data/more.txt")
before = more.read_text()
more.write_text(before + "more")
print(json.dumps({
    "arguments": sys.argv[1:],
    "mode": os.environ["MODE"],
    "rank": os.environ["RANK"] + " of " + os.environ["WORLD_SIZE"],
    "starts at home": os.getcwd() == str(home),
    "files": sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()),
    "executable": os.access("run.sh", os.X_OK),
    "before": before,
    "after": more.read_text(),
}), flush=True)
""",
    "run.sh": b'#!/bin/sh\nexec python3 train.py "$@"\n',
    "data/more.txt": b"words ",
    "data/deep/er/empty": b"",
}
ARGUMENTS = [
    "--lr",
    "0.1",
    "$(HOME)",
    "$$(HOME)",
    "$(touch x)",
    "a b",
    "; ls",
    "*",
    "",
    "'\"",
    "line\nbreak",
    "größe",
]
COMMAND = ["./run.sh", *ARGUMENTS]
ENVIRONMENT = {"MODE": "fast $(HOME)"}


def output(rank: int, size: int) -> dict[str, Any]:
    """Return the expected output of a rank in a group of this size, as JSON."""
    return {
        "arguments": ARGUMENTS,
        "mode": "fast $(HOME)",
        "rank": f"{rank} of {size}",
        "starts at home": True,
        "files": sorted(FILES),
        "executable": True,
        "before": "words ",
        "after": "words more",
    }


UNTIL_READ = """
import fcntl, termios, time
def until_read(output):
    while any(fcntl.ioctl(output, termios.FIONREAD, bytes(4))):
        time.sleep(0.01)
"""
"""The beginning of a Python program that ends only once the engine has read its output.

containerd may lose output that it has not read when the program ends (containerd/containerd, pull request
12364).
"""

OUT_OF_MEMORY = """
import os, time
for _ in range(4):
    if not os.fork():
        bytearray(500 << 20)
    os.wait()
    time.sleep(1)
os._exit(137)
"""
"""A Python program whose child processes are killed because they need 500 MiB.

containerd misses kills for lack of memory just after the start (containerd#8180), and kills that are reported
after the end. So several processes are killed before the program ends.
"""


def saves_at_the_notice(*, seconds: float, exit_code: int) -> str:
    """Return a Python program that prints "up", and prints "saved" some seconds after SIGTERM.

    It ends once the engine has read its output.
    """
    return f"""{UNTIL_READ}
import os, signal, sys
def bye(*_):
    time.sleep({seconds})
    os.write(1, b"saved\\n")
    until_read(1)
    sys.exit({exit_code})
signal.signal(signal.SIGTERM, bye)
os.write(1, b"up\\n")
time.sleep(1000)
"""


def printed_by(text: str) -> Any:
    """Return the value of the JSON text that a rank has printed."""
    return json.loads(text)


def write(folder: Path, files: Mapping[str, bytes] = FILES) -> Path:
    """Write the files into the folder, as a user has them, and return the folder.

    Shell scripts are executable.
    """
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o755 if name.endswith(".sh") else 0o644)
    return folder


def program_job(
    plugin: BackendPlugin,
    backend: str,
    tree: str,
    *command: str,
    instances: int = 1,
    environment: Mapping[str, str] | None = None,
    options: InstanceOptions | None = None,
    requirements: str = "",
    **changes: Any,
) -> Job:
    """Return a job that runs the command in a tree. Its group is resolved as in admission."""
    resolver = Resolver(FixedCatalog({}), backend, plugin)
    roles = {naming.MASTER: 1, **({naming.WORKER: instances - 1} if instances > 1 else {})}
    group = resolver.resolve_program(
        "pytorch", command, Composition(roles, None, False), options or InstanceOptions()
    )
    program = Program(tree=tree, environment=dict(environment or {}), requirements=requirements)
    return job_of(spec(instances=instances, group=group, program=program, data_uri=""), **changes)
