"""Names of groups and instances: pure functions of algorithm, job id, attempt, rank and role.

All names are valid DNS labels. Names of groups are unique in a store, since each name contains the job's id.
"""

import hashlib
import re
from functools import lru_cache
from typing import Final

MASTER = "master"
WORKER = "worker"
DEFAULT_PROJECT: Final = "default"
"""The project of requests that name no project, and of jobs accepted before there were projects."""
DEFAULT_QUEUE: Final = "default"
"""The queue of jobs that name no queue, and of jobs accepted before there were queues."""
PROJECT_RULE: Final = (
    "use 1 to 40 lower-case letters, digits and -; begin with a letter, and end with a letter or digit"
)
_PROJECT = re.compile("[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?")
_UNKNOWN_PROJECT = "-"
_LONGEST_ROLE = "evaluator"

_LABEL_LENGTH = 63
_DIGEST_LENGTH = 6
_SERVICE_SUFFIX = "-master-service"
_LONGEST_SUFFIX = max(len(_SERVICE_SUFFIX), len(f"-999999-{_LONGEST_ROLE}"))


def slug(text: str, length: int) -> str:
    """Return a lower-case DNS label (RFC 1035) of at most `length` characters for any string.

    A string that is such a label, without two hyphens in a row, is returned unchanged. In any other string,
    invalid characters are replaced by hyphens, and a digest of the string is appended, so that different
    strings have different labels.
    """
    kept = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if kept == text and len(kept) <= length and kept[:1].isalpha():
        return kept
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]
    head = kept if kept[:1].isalpha() else f"x-{kept}"
    return f"{head[: length - _DIGEST_LENGTH - 1].strip('-')}-{digest}"


@lru_cache(maxsize=8192)  # each step of the tracker asks for the name
def group_name(algorithm: str, job_id: int, attempt: int) -> str:
    """Return the name of an attempt's group. The first attempt has no suffix, later ones -r1, -r2, …"""
    retry = f"-r{attempt - 1}" if attempt > 1 else ""
    tail = f"-{job_id}{retry}"
    return slug(algorithm, _LABEL_LENGTH - _LONGEST_SUFFIX - len(tail)) + tail


def is_project(text: str) -> bool:
    """Return whether the text can be the name of a project, see PROJECT_RULE.

    The name is part of paths, and of names on engines, so it is a short DNS label (RFC 1123), to which
    prefixes and suffixes can be added.
    """
    return _PROJECT.fullmatch(text) is not None


def home(project: str, store_id: str) -> str:
    """Return the home of a project's jobs, which is PROJECT/STORE, for example default/1a2b3c4d."""
    return f"{project}/{store_id}"


def home_in_store(store_id: str) -> str:
    """Return the home of a group that was found on an engine: its store is known, but not its project."""
    return home(_UNKNOWN_PROJECT, store_id)


def store_of(home: str) -> str:
    """Return the store's id, which is STORE in a home PROJECT/STORE; "" for an empty home."""
    return home.rpartition("/")[2]


def job_folder(home: str, job_id: int) -> str:
    """Return a job's path below the root folders of models, checkpoints and logs alike.

    For example, job 7 has the path default/1a2b3c4d-7, or 7 if its home is empty.

    Every store begins at job 1, so the store's id keeps the folders of different stores apart.
    """
    return f"{home}-{job_id}" if home else str(job_id)


def instance_name(group: str, rank: int, role: str = WORKER) -> str:
    """Return the name of one instance (a pod, container or process) of a group."""
    return f"{group}-{MASTER}" if rank == 0 else f"{group}-{rank}-{role}"


def master_service_name(group: str) -> str:
    """Return the host name of a group's master."""
    return f"{group}-master-service"
