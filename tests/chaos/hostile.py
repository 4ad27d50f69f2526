"""Attacks of hostile jobs on their own folders, by kind and name. Their working directory is the rank's
folder `work`.

The links that they plant lead to a file with a secret, or into a folder, both outside of all jobs
(`OUTSIDE`). Afterwards the secret must not have been read through the service, and the folder must be
unchanged. Forged records contain only impossible pids, because this runs on developers' machines.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.chaos.rank import note

SECRET = "secret"
KEPT = "kept"
FIFO, ROOT_LINK = "fifo", "root"
"""Names in the model's folder."""
_NESTED = "[" * 200_000
_HUGE = 1 << 30  # bytes of a sparse file
_MANY_FILES = 20_000
_NO_PID = 0x7FFFFFFF
_ENDED = '{"code": 0, "stopped": false, "oom_kills": 0, "error": "x", "at": 0}'
_GROUP = '{"name": "../../x", "job_id": 1, "attempt": 1, "roles": [1, [], {}], "ports": ["x", -1, 1e9]}'

_RANK, _GROUP_FOLDER = Path(".."), Path("../..")


def _outside() -> Path:
    return Path(os.environ["OUTSIDE"])


def _model() -> Path:
    model = Path(os.environ["MODEL_URI"])
    model.mkdir(parents=True, exist_ok=True)
    return model


def _stored_log() -> Path:
    """Return where the service will store this job's logs, assuming the layout of the models."""
    model = Path(os.environ["MODEL_URI"])
    storage = next(parent for parent in model.parents if parent.name == "models").parent
    log = storage / "logs" / model.parent.name / model.name
    log.parent.mkdir(parents=True, exist_ok=True)
    return log


def _away(path: Path) -> Path:
    """Delete the file or folder at the path. Return the path."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    return path


def _text(path: Path, text: str) -> Callable[[], object]:
    return lambda: _away(path).write_text(text)


def _huge(path: Path) -> Callable[[], object]:
    def make() -> None:
        _away(path).touch()
        os.truncate(path, _HUGE)

    return make


def _folder(path: Path) -> Callable[[], object]:
    def make() -> None:
        _away(path).mkdir()
        (path / "x").touch()

    return make


def _link(path: Path, target: Callable[[], str | Path]) -> Callable[[], object]:
    return lambda: _away(path).symlink_to(target())


def _fifo(path: Path) -> Callable[[], object]:
    return lambda: os.mkfifo(_away(path))


def _left(plant: Callable[[], object]) -> Callable[[], object]:
    """Return a function that plants a file, then kills the supervisor, which would replace the file with its
    own record.
    """

    def leave() -> None:
        plant()
        os.kill(os.getppid(), signal.SIGKILL)

    return leave


def _link_to_another() -> None:
    """Replace this rank's record by a link to the record of an ended rank of another job."""
    mine = _GROUP_FOLDER.resolve()
    others = [path for path in mine.parent.parent.glob("*/*/*/exit.json") if mine not in path.parents]
    _link(_RANK / "exit.json", lambda: (others or [_outside() / SECRET])[0])()


def _segments() -> list[Path]:
    print("a line, so that there is a log", flush=True)
    deadline = time.monotonic() + 2
    while not (found := sorted((_RANK / "log").glob("0*"))) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found or [_RANK / "log" / f"{0:020d}"]


def _many_files() -> None:
    model = _model()
    for number in range(_MANY_FILES):
        (model / f"{number}").touch()


def _flood(piece: bytes, times: int) -> Callable[[], object]:
    def pour() -> None:
        for _ in range(times):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()

    return pour


def _outlive() -> None:
    """Leave processes behind that are in other sessions, have no environment, and ignore SIGTERM."""
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                note("child")
                os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(1e6)"], {})
            os._exit(0)


ACTS: Mapping[str, Mapping[str, Callable[[], object]]] = {
    "records": {
        "command-empty": _text(_RANK / "command", ""),
        "command-x": _text(_RANK / "command", "x"),
        "command-huge": _huge(_RANK / "command"),
        "process-nested": _text(_RANK / "process.json", _NESTED),
        "process-pid": _text(
            _RANK / "process.json", f'{{"supervisor": 99999999999999999999, "child": {_NO_PID}}}'
        ),
        "process-huge": _huge(_RANK / "process.json"),
        "process-folder": _folder(_RANK / "process.json"),
        "exit-nested": _left(_text(_RANK / "exit.json", _NESTED)),
        "exit-error": _left(_text(_RANK / "exit.json", _ENDED)),
        "exit-huge": _left(_huge(_RANK / "exit.json")),
        "exit-folder": _left(_folder(_RANK / "exit.json")),
        "restarts-digits": _text(_RANK / "restarts", "9" * 5_000),
        "restarts-folder": _folder(_RANK / "restarts"),
        "group-nested": _text(_GROUP_FOLDER / "group.json", _NESTED),
        "group-other": _text(_GROUP_FOLDER / "group.json", _GROUP),
        "group-folder": _folder(_GROUP_FOLDER / "group.json"),
        "stop-nested": _text(_GROUP_FOLDER / "stop.json", _NESTED),
        "stop-folder": _folder(_GROUP_FOLDER / "stop.json"),
        "keep-nested": _text(_GROUP_FOLDER / "keep.json", _NESTED),
        "lock-folder": _folder(_RANK / "lock"),
    },
    "links": {
        "link-exit-zero": _left(_link(_RANK / "exit.json", lambda: "/dev/zero")),
        "link-process-zero": _link(_RANK / "process.json", lambda: "/dev/zero"),
        "link-command-zero": _link(_RANK / "command", lambda: "/dev/zero"),
        "link-group": _link(_GROUP_FOLDER / "group.json", lambda: _outside() / SECRET),
        "link-exit-another": _left(_link_to_another),
        "link-log": lambda: _link(_segments()[0], lambda: _outside() / SECRET)(),
        "link-logs": lambda: _link(_RANK / "log", _outside)(),
        "link-work": lambda: _link(Path.cwd(), _outside)(),
        "link-stored-log": lambda: _link(_stored_log(), _outside)(),
        "link-model-file": lambda: _link(_model() / SECRET, lambda: _outside() / SECRET)(),
        "link-model-root": lambda: _link(_model() / ROOT_LINK, lambda: "/")(),
        "link-model": lambda: _link(_model(), _outside)(),
    },
    "fifos": {
        "fifo-command": _fifo(_RANK / "command"),
        "fifo-process": _fifo(_RANK / "process.json"),
        "fifo-exit": _left(_fifo(_RANK / "exit.json")),
        "fifo-restarts": _fifo(_RANK / "restarts"),
        "fifo-lock": _fifo(_RANK / "lock"),
        "fifo-group": _fifo(_GROUP_FOLDER / "group.json"),
        "fifo-stop": _fifo(_GROUP_FOLDER / "stop.json"),
        "fifo-supervisors-log": _fifo(_GROUP_FOLDER / "supervisors.log"),
        "fifo-log": lambda: _fifo(_segments()[0])(),
        "fifo-stored-log": lambda: _fifo(_stored_log())(),
        "fifo-model": lambda: _fifo(_model() / FIFO)(),
    },
    "floods": {
        "flood-files": _many_files,
        "flood-line": _flood(b"x" * (1 << 16), 800),
        "flood-binary": _flood(os.urandom(1 << 16), 300),
        "flood-lines": _flood(b"x\n" * (1 << 12), 100),
        "flood-reports": _flood(b'::progress:: {"step": 1, "metrics": {"loss": 0.1}}\n' * 100, 500),
        "flood-nested-reports": _flood(b"::progress:: " + b"[" * 12_000 + b"\n", 100),
    },
    "processes": {
        "outlive": _outlive,
        "stop-supervisor": lambda: os.kill(os.getppid(), signal.SIGSTOP),
        "kill-supervisor": lambda: os.kill(os.getppid(), signal.SIGKILL),
        "delete-rank": lambda: shutil.rmtree(_RANK.resolve(), ignore_errors=True),
        "delete-group": lambda: shutil.rmtree(_GROUP_FOLDER.resolve(), ignore_errors=True),
    },
}
"""The attacks by kind and name."""


def main() -> None:
    """Do ACT, then continue for SECONDS."""
    act, seconds = os.environ["ACT"], float(os.environ["SECONDS"])
    note("start", act)
    next(acts[act] for acts in ACTS.values() if act in acts)()
    note("done", act)
    time.sleep(seconds)
    note("end", act)
