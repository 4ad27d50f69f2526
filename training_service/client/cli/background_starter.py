"""Writes its own pid to a file, and then becomes a background service.

It runs as `python -I -S background_starter.py RECORD COMMAND...`, where RECORD is the path of the file. The
file is written before the service runs. So it exists for each service, even if trainctl is killed right after
the start. The file has the pid, and the start time of the process in ticks since the start of the machine.
The time distinguishes the process from a later one with the same pid.
"""

import os
import sys
from pathlib import Path


def start_of(pid: int) -> int:
    """Return when the process started, in ticks since the machine's start. Raises OSError if it has ended."""
    # proc(5): "pid (name) state ppid …". The name may contain any character, even ")".
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])


def main(record: str, command: list[str]) -> None:
    """Write the file `record`, and run the command in place of this program."""
    draft = Path(f"{record}.part")
    with draft.open("w") as file:
        file.write(f"{os.getpid()} {start_of(os.getpid())}\n")
        file.flush()
        os.fsync(file.fileno())
    draft.rename(record)
    os.execv(command[0], command)  # noqa: S606  # trainctl gives the command


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
