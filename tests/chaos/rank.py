"""One rank of an honest job: it records its start and end in the audit file, and acts as DO says.

It needs only Python, because on a cluster its source is the container's command. `AUDIT` is a folder. The
file `audit` in it gets a line for each event, by one appending write. The file `job-N` is for locks: each
rank locks one of its bytes, chosen by attempt and rank, as long as it lives. So a rank detects at once
another process with its own number, and any rank of another attempt.
"""

import fcntl
import os
import signal
import sys
import time

_RANKS = 16  # bytes of the lock file for each attempt
_BUSY_SECONDS = 0.5  # a check of another rank holds a byte for some microseconds
_STEP_SECONDS = 0.1


def note(event: str, what: object = "-") -> None:
    """Append a line to the audit file; see audit.Line."""
    with open("/proc/self/stat") as file:
        ticks = file.read().rpartition(")")[2].split()[19]
    who = (
        f"{os.environ['JOB_ID']} {os.environ['JOB_ATTEMPT']} {_number()} {_restarts()} {os.getpid()} {ticks}"
    )
    line = f"{event} {who} {time.clock_gettime(time.CLOCK_BOOTTIME):.6f} {what}\n"
    audit = os.open(os.path.join(os.environ["AUDIT"], "audit"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.write(audit, line.encode())
    os.close(audit)


def main() -> None:
    """Run the rank according to DO, SECONDS and EXIT_CODE."""
    if os.environ.get("STUBBORN"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, _stopped)
    _hold_lock()
    note("start")
    print(f"rank {_number()} of job {os.environ['JOB_ID']}", flush=True)
    _live(os.environ.get("DO", "run"), float(os.environ.get("SECONDS", "0")))
    code = int(os.environ.get("EXIT_CODE") or "0")
    if _number() == 0 and code == 0:
        _publish(os.path.join(os.environ["MODEL_URI"], "model.txt"), f"model of job {os.environ['JOB_ID']}")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # so that the end is recorded once
    note("end", code)
    sys.exit(code)


def _live(do: str, seconds: float) -> None:
    size = os.environ.get("WORLD_SIZE") or os.environ["PET_NNODES"].rpartition(":")[2]
    last = _number() == int(size) - 1
    is_first = os.environ["JOB_ATTEMPT"] == "1" and _restarts() == 0
    if do in ("die", "lose a worker") and last and is_first:
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGKILL)
    if do == "lose a worker":
        seconds *= 3  # time for the events after the loss
    if do == "hold":
        seconds = 1e6
    if do == "checkpoint" and _number() == 0:
        _train_on(int(seconds / _STEP_SECONDS))
    else:
        time.sleep(seconds)


def _train_on(steps: int) -> None:
    """Continue from the checkpoint, and save one after each step."""
    checkpoint = os.path.join(os.environ["CHECKPOINT_URI"], "step")
    step = 0
    if os.path.exists(checkpoint):
        with open(checkpoint) as file:
            step = int(file.read())
    note("resume", step)
    while step < steps:
        time.sleep(_STEP_SECONDS)
        step += 1
        _publish(checkpoint, str(step))
        note("save", step)
        print(f'::progress:: {{"step": {step}, "total_steps": {steps}}}', flush=True)


def _publish(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(f"{path}.part", "w") as file:
        file.write(text)
    os.rename(f"{path}.part", path)


def _hold_lock() -> None:
    attempt = int(os.environ["JOB_ATTEMPT"])
    path = os.path.join(os.environ["AUDIT"], f"job-{os.environ['JOB_ID']}")
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    deadline = time.monotonic() + _BUSY_SECONDS
    while not _locked(lock, fcntl.LOCK_EX, attempt * _RANKS + _number(), 1):
        if time.monotonic() > deadline:
            note("twice")
            break
        time.sleep(0.01)
    # A shared lock is refused only if a rank of another attempt holds its byte.
    for first, length in ((0, attempt * _RANKS), ((attempt + 1) * _RANKS, 0)):
        if _locked(lock, fcntl.LOCK_SH, first, length):
            fcntl.lockf(lock, fcntl.LOCK_UN, length, first)
        else:
            note("beside")


def _locked(lock: int, kind: int, first: int, length: int) -> bool:
    try:
        fcntl.lockf(lock, kind | fcntl.LOCK_NB, length, first)
    except OSError:
        return False
    return True


def _stopped(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note("end", "stopped")
    os._exit(128 + number)


def _number() -> int:
    # torchrun would set RANK from PET_NODE_RANK.
    return int(os.environ.get("RANK") or os.environ["PET_NODE_RANK"])


def _restarts() -> int:
    """Return the restarts of this rank in its attempt. The process backend stores them beside `work`."""
    try:
        with open(os.path.join(os.environ.get("HOME", ""), "..", "restarts")) as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


if __name__ == "__main__":
    main()
