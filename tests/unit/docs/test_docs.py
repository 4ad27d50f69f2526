"""What the documents promise is there."""

import re
from pathlib import Path

import pytest

from job_tracker.diagnosis import Category

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_every_diagnosis_is_explained() -> None:
    explained = set(re.findall(r"`([a-z_]+)`", (ROOT / "docs" / "job-states.md").read_text()))
    assert set(Category) - explained == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []
