"""The example of a file in docs/timelines.md can be drawn."""

import re
from pathlib import Path
from xml.etree import ElementTree

from training_service.client.timelines import read

DOCS = Path(__file__).parents[3] / "docs"


def test_the_example_of_the_file_can_be_drawn() -> None:
    [example] = re.findall(r"^```json\n(.*?)^```$", (DOCS / "timelines.md").read_text(), re.M | re.S)
    assert read([example.encode()]).measured.schedule == "gpipe"


def test_the_picture_is_one() -> None:
    assert ElementTree.parse(DOCS / "timeline-gpipe.svg").getroot().tag.endswith("svg")
