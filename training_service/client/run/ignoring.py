"""Decides which files of a folder are not uploaded: files that git ignores, `.git`, `__pycache__` and virtual
environments.
"""

from collections.abc import Iterator
from pathlib import Path

from pathspec import GitIgnoreSpec

from training_service.client.errors import InvalidRequest
from training_service.client.run.opening import open_content

_FILE = ".gitignore"
_ALWAYS = frozenset({".git", "__pycache__"})
_OF_VIRTUAL_ENVIRONMENT = "pyvenv.cfg"
"""A file that every virtual environment has. A virtual environment does not work at another path."""


class Ignored:
    """The rules of the `.gitignore` files in a folder, below it, and above it up to its git repository.

    As in git, the last rule that matches counts, and the rules of an inner folder come after the rules of an
    outer folder. If a folder is ignored, no rule can include a file in it again.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._rules: dict[Path, GitIgnoreSpec | None] = {}
        self._outer = list(_up_to_repository(root))

    def ignores(self, path: Path, *, is_folder: bool) -> bool:
        """Return whether a file or folder below the root is left out.

        The result is right only if the parent folder of `path` is not left out.
        """
        if path.name in _ALWAYS or (is_folder and (path / _OF_VIRTUAL_ENVIRONMENT).exists()):
            return True
        for folder in (*self._inner(path), *self._outer):
            rules = self._rules_of(folder)
            if rules is None:
                continue
            relative = path.relative_to(folder).as_posix()
            verdict = rules.check_file(f"{relative}/" if is_folder else relative).include
            if verdict is not None:
                return verdict
        return False

    def _inner(self, path: Path) -> Iterator[Path]:
        """Yield the folders that contain the path: its parent first, the root last."""
        while path != self._root:
            path = path.parent
            yield path

    def _rules_of(self, folder: Path) -> GitIgnoreSpec | None:
        if folder not in self._rules:
            self._rules[folder] = _read(folder / _FILE)
        return self._rules[folder]


def _up_to_repository(root: Path) -> Iterator[Path]:
    """Yield the folders above the root, up to the folder of its git repository; nothing without a
    repository.
    """
    above = [root, *root.parents]
    for number, folder in enumerate(above):
        if (folder / ".git").exists():
            yield from above[1 : number + 1]
            return


def _read(path: Path) -> GitIgnoreSpec | None:
    try:
        with open_content(path) as file:
            return GitIgnoreSpec.from_lines(file.read().decode(errors="replace").splitlines())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{path} cannot be read: {error}") from None
