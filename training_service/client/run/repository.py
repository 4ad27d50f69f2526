"""Reads the git commit of a folder, and the changes since the commit, without running code of the repository.

The configuration and the attributes of a repository can name programs that git runs to compare files:
filters, drivers for diffs, and a monitor of the file system. A folder that another person has packed can
contain such a repository. So all these programs are turned off for every call, and nothing is fetched.
"""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from training_service.client.run.ignoring import Ignored
from training_service.client.run.working_tree import WorkingTree

CHANGES = "changes.diff"
"""The name of the file with the changes. It is the only file of its tree."""
MOST_CHANGES = 1 << 20
"""The most bytes of changes that are recorded."""
_SECONDS = 10.0
"""The time limit of all calls of git together. If it is reached, the version or the changes are missing."""
_MOST_NAMES = 16 << 20
_MOST_ARGUMENTS = 100_000  # bytes; Linux allows 2 MiB for arguments and environment
_PIECE = 1 << 16
_KEPT_VARIABLES = frozenset({"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CEILING_DIRECTORIES"})
_SAFE = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.pager": "cat",
    "diff.ignoreSubmodules": "dirty",
    "safe.bareRepository": "explicit",
}
_DIFF = (
    *("diff", "--relative", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames"),
    *("--ignore-submodules=dirty", "--src-prefix=a/", "--dst-prefix=b/"),
)
_CUT = b"# The rest is not recorded: at most %d bytes are.\n"


@dataclass(frozen=True, slots=True)
class Revision:
    """The state of a folder in its git repository."""

    version: str = ""
    """The commit, with `-dirty` if tracked files of the folder have changed since.

    Empty: there is no git or no commit, or git failed.
    """
    changes: bytes = b""
    """The changes of tracked files since the commit, as `git diff` prints them, after a line that names the
    commit.

    Empty: there are none, or git failed.
    """

    @property
    def lines(self) -> tuple[int, int]:
        """The numbers of added lines and of removed lines."""
        return _counted(self.changes)


def revision_of(files: WorkingTree) -> Revision:
    """Return the commit of the files' folder, and the changes of the files since the commit.

    Files that git ignores are left out.
    """
    git = _Git(files.folder)
    commit = git.read("rev-parse", "--verify", "--quiet", "HEAD^{commit}").decode(errors="replace").strip()
    if not commit:
        return Revision()
    names = git.read(*_DIFF, "--name-only", "-z", "HEAD", "--", ".")
    changed = [os.fsdecode(name) for name in names.split(b"\0") if name]
    if not changed:
        return Revision(commit if git.is_fine else "")
    shown, is_cut = _bounded(_recorded(changed, files))
    text = git.read(*_DIFF, "HEAD", "--", *shown, most=MOST_CHANGES + 1) if shown else b""
    if not git.is_fine:
        return Revision(f"{commit}-dirty")
    return Revision(f"{commit}-dirty", _text(commit, text, is_cut=is_cut))


class _Git:
    """Runs git in a folder. After a failure, `is_fine` is false, and calls return nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._end = time.monotonic() + _SECONDS
        self.is_fine = True
        self._options = ["--no-pager", "--literal-pathspecs"]
        for name, value in _SAFE.items():
            self._options += ["-c", f"{name}={value}"]
        self._turn_off_filters()

    def read(self, *arguments: str, most: int = _MOST_NAMES) -> bytes:
        """Return the output of git, at most `most` bytes; empty after a failure."""
        if not self.is_fine:
            return b""
        command = ("git", *self._options, *arguments)
        try:
            code, printed = _run(command, self._folder, most, self._end)
        except OSError:
            code, printed = -1, b""
        self.is_fine = code == 0
        return printed if self.is_fine else b""

    def _turn_off_filters(self) -> None:
        names = self.read("config", "--includes", "-z", "--name-only", "--get-regexp", r"^filter\.")
        self.is_fine = True  # the command fails if no filter is configured, which is no error here
        drivers = {os.fsdecode(name).rpartition(".")[0] for name in names.split(b"\0") if name}
        for driver in sorted(drivers):
            # In an option -c, git ends the name at the first =. So the option cannot turn off a driver with =
            # in its name. If there is one, `is_fine` becomes false, so git is not called again.
            self.is_fine &= "=" not in driver
            self._options += [
                *("-c", f"{driver}.clean=", "-c", f"{driver}.smudge=", "-c", f"{driver}.process="),
                *("-c", f"{driver}.required=false"),
            ]


def _run(command: Sequence[str], folder: Path, most: int, end: float) -> tuple[int, bytes]:
    """Run a command, at most until `end`. Return its exit code and the first `most` bytes of its output.

    `end` is a time of the monotonic clock. A command that prints `most` bytes or more is stopped, and its
    exit code is given as 0. A command that is still running at `end` is stopped, too; its exit code is given
    as -1, without output.
    """
    with (
        subprocess.Popen(
            command,
            cwd=folder,
            env=_environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process,
        selectors.DefaultSelector() as selector,
    ):
        assert process.stdout is not None, "it is a pipe"
        selector.register(process.stdout, selectors.EVENT_READ)
        printed = bytearray()
        try:
            while len(printed) < most:
                if not selector.select(max(0.0, end - time.monotonic())):
                    return -1, b""
                piece = os.read(process.stdout.fileno(), min(_PIECE, most - len(printed)))
                if not piece:
                    return process.wait(max(0.1, end - time.monotonic())), bytes(printed)
                printed += piece
            return 0, bytes(printed)
        except subprocess.TimeoutExpired:
            return -1, b""
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for git.

    It has no variables that select a repository, so git uses the repository of the folder.
    """
    kept = {
        name: value
        for name, value in variables.items()
        if not name.startswith("GIT_") or name in _KEPT_VARIABLES
    }
    return {
        **kept,
        "LC_ALL": "C",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
    }


def _recorded(changed: Iterable[str], files: WorkingTree) -> Iterator[str]:
    """Yield the paths of changed files that are sent, or that were removed and are not ignored."""
    sent, ignored = {file.path for file in files.files}, Ignored(files.folder)
    for path in changed:
        place = files.folder / path
        if path in sent or (not os.path.lexists(place) and not _is_ignored(place, files.folder, ignored)):
            yield path


def _is_ignored(place: Path, folder: Path, ignored: Ignored) -> bool:
    if ignored.ignores(place, is_folder=False):
        return True
    above = place.parents[: len(place.relative_to(folder).parts) - 1]
    return any(ignored.ignores(each, is_folder=True) for each in above)


def _bounded(paths: Iterable[str]) -> tuple[list[str], bool]:
    """Return the first paths, as many as fit into the arguments of a command, and whether there are more."""
    found: list[str] = []
    size = 0
    for path in paths:
        size += len(os.fsencode(path)) + 1
        if size > _MOST_ARGUMENTS:
            return found, True
        found.append(path)
    return found, False


def _text(commit: str, text: bytes, *, is_cut: bool) -> bytes:
    """Return the changes as they are recorded: with a first line that names the commit, and cut to
    MOST_CHANGES bytes.

    `git apply` and `patch` skip the lines before the first file. `is_cut` says that some changed files are
    missing from `text`.
    """
    if not text:
        return b""
    head, cut = f"# Changes since commit {commit}\n".encode(), _CUT % MOST_CHANGES
    room = MOST_CHANGES - len(head) - len(cut)
    if len(text) > room:
        is_cut, text = True, text[: text.rfind(b"\n", 0, room) + 1]
    return head + text + (cut if is_cut else b"")


def _counted(changes: bytes) -> tuple[int, int]:
    added = removed = 0
    in_hunk = False
    for line in changes.split(b"\n"):
        if line.startswith(b"@@ "):
            in_hunk = True
        elif not line.startswith((b"+", b"-", b" ", b"\\")):
            in_hunk = False
        elif in_hunk:
            added += line.startswith(b"+")
            removed += line.startswith(b"-")
    return added, removed
