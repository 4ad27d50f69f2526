"""The page of sweeps: its example is valid, and every setting is explained."""

import re
import tomllib
from pathlib import Path

from training_service.client.sweeps.settings import Sweep, checked

PAGE = (Path(__file__).parents[3] / "docs" / "sweeps.md").read_text()


def test_the_example_is_valid() -> None:
    example, more = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert checked(tomllib.loads(example)).method == "tpe"
    assert checked({**tomllib.loads(example), **tomllib.loads(more)}).method == "tpe"


def test_every_setting_is_explained() -> None:
    explained = {name.partition(".")[0] for name in re.findall(r"`([a-z_.]+)`", PAGE)}
    assert set(Sweep.model_fields) - explained == set()
