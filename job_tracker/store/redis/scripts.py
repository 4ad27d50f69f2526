"""The Lua scripts: each is one atomic step, checks first and writes after.

Redis does not undo what a script that fails has written; it refuses a script's first write (out of
memory, a disk that is full, a replica) rather than a later one, so that nothing is ever half done.

Every script but OPEN gets the id of the store, and touches nothing in any other: a server that lost
its data stays as empty as it is. Those of the tracker also get its term, and do nothing in one that is
over. The first element of what a script returns says how it went.
"""

import hashlib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class Script:
    """A script, and the digest that a server knows it by once it has run."""

    name: str
    text: str
    digest: str


def _load(name: str, *before: str) -> Script:
    folder = resources.files(__package__) / "lua"
    text = "\n".join((folder / f"{part}.lua").read_text() for part in ("common", *before, name))
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


OPEN = _load("open")
SUBMIT = _load("submit", "guard")
FIND_SUBMITTED = _load("find_submitted", "guard")
GET = _load("get", "guard")
UPDATE = _load("update", "guard", "fence")
REPORT = _load("report", "guard")
METRICS = _load("metrics", "guard")
ARTIFACTS = _load("artifacts", "guard")
SECRET = _load("secret", "guard")
SKIP_IDS = _load("skip_ids", "guard")
HEAD = _load("head", "guard")
POSITION = _load("position", "guard")
LIVE = _load("live", "guard")
TALLIES = _load("tallies", "guard")
LIST = _load("list", "guard")
DUE = _load("due", "guard")
OLD = _load("old", "guard")
DELETE = _load("delete", "guard", "fence")
LEAD = _load("lead", "guard")
RESIGN = _load("resign", "guard")
