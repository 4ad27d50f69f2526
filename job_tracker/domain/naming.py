"""Outside names: a pure function of (algorithm, job id, attempt, rank), valid as DNS labels.

No two groups share a name, whatever the algorithms are called, since the job id is always in it.
"""

import hashlib
import re
from functools import lru_cache

MASTER = "master"
WORKER = "worker"
DEFAULT_PROJECT = "default"
_LONGEST_ROLE = "evaluator"

_LABEL_LENGTH = 63
_DIGEST_LENGTH = 6
_SERVICE_SUFFIX = "-master-service"
_LONGEST_SUFFIX = max(len(_SERVICE_SUFFIX), len(f"-999999-{_LONGEST_ROLE}"))


def slug(text: str, length: int) -> str:
    """A lower-case DNS label (RFC 1035) of at most `length` characters for any text.

    Text that is such a label already stays as it is. Any other keeps what can be kept, and gets a
    digest of the original, so that different texts do not become the same slug.
    """
    kept = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if kept == text and len(kept) <= length and kept[:1].isalpha():
        return kept
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]
    head = kept if kept[:1].isalpha() else f"x-{kept}"
    return f"{head[: length - _DIGEST_LENGTH - 1].strip('-')}-{digest}"


@lru_cache(maxsize=8192)  # each look at a job asks for it
def group_name(algorithm: str, job_id: int, attempt: int) -> str:
    """The name of an attempt's group; the first attempt has no suffix, the next ones -r1, -r2, …"""
    retry = f"-r{attempt - 1}" if attempt > 1 else ""
    tail = f"-{job_id}{retry}"
    return slug(algorithm, _LABEL_LENGTH - _LONGEST_SUFFIX - len(tail)) + tail


def home(store_id: str) -> str:
    """The place of the jobs of a store, as in default/1a2b3c4d."""
    return f"{DEFAULT_PROJECT}/{store_id}"


def store_of(home: str) -> str:
    """The id of the store in a home; "" without a home."""
    return home.rpartition("/")[2]


def job_folder(home: str, job_id: int) -> str:
    """The relative path of a job's folders: default/1a2b3c4d-7, or 7 without a home.

    Stores begin at job 1, so it is the id of the store that keeps their jobs apart.
    """
    return f"{home}-{job_id}" if home else str(job_id)


def instance_name(group: str, rank: int, role: str = WORKER) -> str:
    """The name of one instance (a pod, a container, a process) of a group."""
    return f"{group}-{MASTER}" if rank == 0 else f"{group}-{rank}-{role}"


def master_service_name(group: str) -> str:
    """The name by which the instances of a group find their master."""
    return f"{group}-master-service"
