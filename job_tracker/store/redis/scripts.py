"""The Lua scripts. Each script is one atomic step.

Before its first write, a script checks all reasons to refuse the call. The exception is REPORT_KEY_ROTATE: it
deletes unused keys before it checks the number of keys.

Redis does not roll back a failed script. However, if Redis refuses writes (out of memory, full disk,
read-only replica), it refuses the first write of a script. It never accepts the first write and then
refuses a later one. So no step is ever half done.

Every script except OPEN gets the id of the store, and does nothing if the server has another store. So a
server that has lost its data stays empty. The scripts by which the tracker writes also get the tracker's
term, and do nothing if this term is over. The first element of an answer is the outcome.
"""

import hashlib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class Script:
    """A script and its digest. Calls send the digest, and the text only if the server lacks the script."""

    name: str
    text: str
    digest: str


def _load(name: str, *before: str) -> Script:
    folder = resources.files(__package__) / "lua"
    text = "\n".join((folder / f"{part}.lua").read_text() for part in ("common", *before, name))
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


OPEN = _load("open", "queue_sets")
SUBMIT = _load("submit", "guard", "audit")
FIND_SUBMITTED = _load("find_submitted", "guard")
GET = _load("get", "guard")
UPDATE = _load("update", "guard", "fence", "audit")
REPORT = _load("report", "guard")
METRICS = _load("metrics", "guard")
METRIC_NAMES = _load("metric_names", "guard")
ARTIFACTS = _load("artifacts", "guard")
SKIP_IDS = _load("skip_ids", "guard")
HEAD = _load("head", "guard")
POSITION = _load("position", "guard")
QUEUES = _load("queues", "guard")
NOTES = _load("notes", "guard")
NOTE = _load("note", "guard")
NOTES_KEEP = _load("notes_keep", "guard", "fence")
LIVE = _load("live", "guard")
TALLIES = _load("tallies", "guard")
PROJECT_TALLIES = _load("project_tallies", "guard")
LIST = _load("list", "guard")
DUE = _load("due", "guard")
OLD = _load("old", "guard")
ANNOTATE = _load("annotate", "guard", "audit")
REMAINS = _load("remains", "guard")
FORGET_REMAINS = _load("forget_remains", "guard", "fence")
DELETE = _load("delete", "guard", "fence", "audit")
LEAD = _load("lead", "guard", "queue_sets")
RESIGN = _load("resign", "guard")
ACCESS_VERSION = _load("access_version", "guard")
TOKEN_ADD = _load("token_add", "guard", "access", "audit")
TOKEN_GET = _load("token_get", "guard", "access")
TOKEN_LIST = _load("token_list", "guard", "access")
TOKEN_REVOKE = _load("token_revoke", "guard", "access", "audit")
TOKEN_TOUCH = _load("token_touch", "guard", "access")
PROJECTS = _load("projects", "guard")
PROJECT_PUT = _load("project_put", "guard", "access", "audit")
PROJECT_DELETE = _load("project_delete", "guard", "access", "declaration_changes", "audit")
DECLARATIONS_VERSION = _load("declarations_version", "guard", "declaration_changes")
DECLARATIONS = _load("declarations", "guard", "declaration_changes")
DECLARATION_PUT = _load("declaration_put", "guard", "declaration_changes", "audit")
DECLARATION_REMOVE = _load("declaration_remove", "guard", "declaration_changes", "audit")
AUDIT_ADD = _load("audit_add", "guard", "audit")
AUDIT_LIST = _load("audit_list", "guard")
AUDIT_AFTER = _load("audit_after", "guard")
AUDIT_DELETE = _load("audit_delete", "guard", "fence")
REPORT_KEYS = _load("report_keys", "guard", "report_key_parts")
REPORT_KEY_ROTATE = _load("report_key_rotate", "guard", "access", "report_key_parts", "audit")
REPORT_KEY_REMOVE = _load("report_key_remove", "guard", "access", "report_key_parts", "audit")
REPORT_KEY_PURGE = _load("report_key_purge", "guard", "access", "report_key_parts")
