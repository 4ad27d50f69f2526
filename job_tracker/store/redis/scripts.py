"""The Lua scripts: each is one atomic step, checks first and writes after.

Redis does not undo what a script that fails has written; it refuses a script's first write (out of
memory, a disk that is full, a replica) rather than a later one, so that nothing is ever half done.

Every script but OPEN gets the id of the store, and touches nothing in any other: a server that lost
its data stays as empty as it is. The first element of what a script returns says how it went.
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


def _load(name: str, *, guarded: bool = True) -> Script:
    folder = resources.files(__package__) / "lua"
    parts = ["common.lua", "guard.lua", f"{name}.lua"] if guarded else ["common.lua", f"{name}.lua"]
    text = "\n".join((folder / part).read_text() for part in parts)
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


OPEN = _load("open", guarded=False)
SUBMIT = _load("submit")
FIND_SUBMITTED = _load("find_submitted")
GET = _load("get")
UPDATE = _load("update")
PROGRESS = _load("progress")
HEAD = _load("head")
POSITION = _load("position")
LIVE = _load("live")
TALLIES = _load("tallies")
LIST = _load("list")
DUE = _load("due")
OLD = _load("old")
DELETE = _load("delete")
