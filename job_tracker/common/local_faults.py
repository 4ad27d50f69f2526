"""Temporary faults of this machine, such as a full disk. They are no reason to fail a job."""

import errno

_REMEDIES = {
    errno.EMFILE: "the service has no file descriptors left; raise its limit (ulimit -n, LimitNOFILE)",
    errno.ENFILE: "this machine has no file descriptors left; raise fs.file-max, or end other programs",
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space, or raise the quota",
    errno.EAGAIN: "the limit of processes is reached; raise it (ulimit -u, TasksMax), or end some processes",
    errno.ENOMEM: "this machine has no memory left; end other programs, or lower scheduling.capacity",
}


_OF_READING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def hinders_reading(error: OSError) -> bool:
    """Return whether the fault prevents all reading now; other errors concern only the file."""
    return error.errno in _OF_READING


def remedy_of(error: OSError) -> str | None:
    """Return what is lacking and what to do, for a temporary fault; None for other errors."""
    return _REMEDIES.get(error.errno or 0)
