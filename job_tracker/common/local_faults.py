"""Faults of this machine that pass by themselves, or once there is room again: no reason to fail a job."""

import errno

_REMEDIES = {
    errno.EMFILE: "the service has no file descriptor left; raise its limit (ulimit -n, LimitNOFILE)",
    errno.ENFILE: "this machine has no file descriptor left; raise fs.file-max, or end what holds so many",
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space, or raise the quota",
    errno.EAGAIN: "no further process may be started; raise the limit (ulimit -u, TasksMax), or end some",
    errno.ENOMEM: "this machine has no memory left; end what uses it, or lower scheduling.capacity",
}


_OF_READING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def hinders_reading(error: OSError) -> bool:
    """Whether nothing can be read now; any other error is of the file alone."""
    return error.errno in _OF_READING


def remedy_of(error: OSError) -> str | None:
    """What is lacking and what to do, for a fault that passes; None for any other."""
    return _REMEDIES.get(error.errno or 0)
