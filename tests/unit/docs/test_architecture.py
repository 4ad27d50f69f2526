"""The tree of the architecture page shows every folder of the domain, and only existing files."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
LINE = re.compile(r"((?:  )*)([\w./]+) {2,}\S")


def shown() -> list[Path]:
    """Return the path of each line of the tree, by its indentation, without NAME/, which stands for any."""
    [tree] = re.findall(r"^## Folders\n\n```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    above, found = [ROOT], []
    for line in tree.splitlines():
        if (entry := LINE.match(line)) and len(entry[1]) < len("training_service/"):
            depth = len(entry[1]) // 2
            above[depth + 1 :] = [above[depth] / entry[2]]
            found.append(above[-1])
    return [path for path in found if path.name != "NAME"]


def test_every_path_in_the_tree_exists() -> None:
    assert len(shown()) > 20
    assert [str(path.relative_to(ROOT)) for path in shown() if not path.exists()] == []


def test_the_tree_shows_every_folder_of_the_domain() -> None:
    folders = {path.parent for path in (ROOT / "job_tracker").glob("*/__init__.py")}
    assert folders
    assert folders - set(shown()) == set()
