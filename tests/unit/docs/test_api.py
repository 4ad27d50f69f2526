"""The API page explains every status code that a call can end with."""

import re
from pathlib import Path

from training_service.api import errors

PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text()


def test_every_status_code_is_explained() -> None:
    explained = set(re.findall(r"^\| ([A-Z_]+) \|", PAGE, re.MULTILINE))
    assert {code.name for _, code in errors._CODES} - explained == set()
