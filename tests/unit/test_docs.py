"""The documents name only existing options, links, headings, files and names."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.core
import typer.main

from job_tracker.domain.diagnosis import Category
from training_service.client.cli.app import app

ROOT = Path(__file__).parents[2]
SOURCES = (
    "benchmarks",
    "deploy",
    "job_tracker",
    "proto",
    "scripts",
    "tests",
    "trainer_images",
    "training_service",
)
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(
        ROOT / page
        for page in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md", "trainer_images/README.md")
    ),
    ROOT / "tests" / "cluster" / "README.md",
    ROOT / "tests" / "security" / "README.md",
    ROOT / "SECURITY.md",
]


def test_every_diagnosis_is_explained() -> None:
    explained = set(re.findall(r"`([a-z_]+)`", (ROOT / "docs" / "job-states.md").read_text()))
    assert set(Category) - explained == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_line_of_trainctl_has_existing_options(page: Path) -> None:
    group: Any = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    text = page.read_text().replace("\\\n", " ")  # joins lines that end in \
    for line in re.findall(r"\btrainctl((?: [^`\n|;#]*)?)", text):
        words = line.split(" -- ")[0].split()  # after it come the arguments of a program
        here: Any = group
        known = names_of(group)
        for word in words:
            if word in getattr(here, "commands", {}):
                here = here.commands[word]
                named = "transformer" if words[:2] == ["plan", "transformer"] else None
                known |= names_of(here, named)
        given = {word.partition("=")[0] for word in words if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word)}
        assert given - known == set(), f"trainctl{line}"


def names_of(command: Any, planner: str | None = None) -> set[str]:
    """Return the names of the command's options. Those of `plan` are its planner's."""
    arguments = [planner] if planner else []
    asked = command.make_context(command.name, arguments, resilient_parsing=True).command
    return {name for option in asked.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_has_a_target(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_anchor_is_a_heading(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text())
    assert [
        f"{path}#{anchor}" for path, anchor in links if anchor not in anchors_of(page.parent / path, page)
    ] == []


@cache
def anchors_of(target: Path, page: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings. A link without a path is to the page itself."""
    headings = re.findall(r"^#+ (.*)$", (page if target.is_dir() else target).read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_named_file_exists(page: Path) -> None:
    """Parent folders may be left out, as in `store/jobs.py`."""
    named = re.findall(r"`([\w./-]+\.(?:py|lua|proto))(?::[^`]*)?`", prose_of(page))
    assert [name for name in named if not any(file.endswith(f"/{name}") for file in sources())] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_in_a_named_file_exists(page: Path) -> None:
    """For example `job_tracker/jobs.py: Jobs.submit`."""
    named = re.findall(r"`([\w./-]+\.py): ([\w.]+)`", prose_of(page))
    assert [f"{file}: {name}" for file, name in named if name not in names_in(ROOT / file)] == []


def prose_of(page: Path) -> str:
    """Return the page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


@cache
def sources() -> list[str]:
    return [f"/{file.relative_to(ROOT)}" for folder in SOURCES for file in (ROOT / folder).rglob("*.*")]


def names_in(file: Path) -> set[str]:
    return set(defined_by(ast.parse(file.read_text()).body, ""))


def defined_by(statements: list[ast.stmt], prefix: str) -> Iterator[str]:
    """Yield the names of classes, functions and annotated values. Those in a class are Class.name."""
    for each in statements:
        match each:
            case ast.ClassDef(name=name, body=body):
                yield f"{prefix}{name}"
                yield from defined_by(body, f"{prefix}{name}.")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield f"{prefix}{name}"
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield f"{prefix}{name}"
