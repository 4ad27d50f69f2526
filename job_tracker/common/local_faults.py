"""Temporary faults of this machine, such as a full disk. A job must not fail because of them."""

import errno

DISK_FULL = "the disk is full; free some space"

_REMEDIES = {
    errno.EMFILE: "the service has no file descriptors left; raise its limit (ulimit -n, LimitNOFILE)",
    errno.ENFILE: "this machine has no file descriptors left; raise fs.file-max, or end other programs",
    errno.ENOSPC: DISK_FULL,
    errno.EDQUOT: "the disk quota is used up; free some space, or raise the quota",
    errno.EAGAIN: "the limit of processes is reached; raise it (ulimit -u, TasksMax), or end some processes",
    errno.ENOMEM: "this machine has no memory left; end other programs, or lower scheduling.capacity",
}


_OF_READING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def hinders_reading(error: OSError) -> bool:
    """Return whether the error hinders the reading of all files. Other errors concern a single file."""
    return error.errno in _OF_READING


def remedy_of(error: OSError) -> str | None:
    """Return a description of a temporary fault, with a remedy; None for other errors."""
    return _REMEDIES.get(error.errno or 0)
