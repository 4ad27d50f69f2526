"""What the documents promise is there."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer.core
import typer.main

from job_tracker.domain.diagnosis import Category
from training_service.client.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_every_diagnosis_is_explained() -> None:
    explained = set(re.findall(r"`([a-z_]+)`", (ROOT / "docs" / "job-states.md").read_text()))
    assert set(Category) - explained == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_line_of_trainctl_has_options_that_there_are(page: Path) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    text = page.read_text().replace("\\\n", " ")  # a line that ends in \ goes on in the next
    for line in re.findall(r"\btrainctl((?: [^`\n|;#]*)?)", text):
        words = line.split()
        command = next((word for word in words if word in group.commands), None)
        known = names_of(group) | (names_of(group.commands[command]) if command else set())
        given = {word.partition("=")[0] for word in words if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word)}
        assert given - known == set(), f"trainctl{line}"


def names_of(command: Any) -> set[str]:
    """Every name of the command's options; those of `plan` are its planner's."""
    asked = command.make_context(command.name, [], resilient_parsing=True).command
    return {name for option in asked.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []
