"""The pages of frameworks show whole, current examples and a valid configuration."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.support.catalog import ALGORITHM

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs" / "frameworks").glob("*.md"))
EXAMPLE = re.compile(r"^\[(trainer_images/\S+)\]\(\S+\)\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONFIGURATION = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MAX_LINES = 75


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_an_example_is_the_whole_file_and_short(page: Path) -> None:
    examples = EXAMPLE.findall(page.read_text())
    assert examples
    for path, shown in examples:
        assert shown == (ROOT / path).read_text()
        assert len(shown.splitlines()) <= MAX_LINES


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "README.md"], ids=lambda page: page.name
)
def test_the_configuration_is_valid_for_every_engine(page: Path) -> None:
    algorithms = [
        ALGORITHM.model_validate(recipe)
        for block in CONFIGURATION.findall(page.read_text())
        for recipe in tomllib.loads(block)["algorithms"].values()
    ]
    assert algorithms
    for algorithm in algorithms:
        assert algorithm.process
        assert algorithm.docker
        assert algorithm.kubernetes
