"""What exits and logs say alike, whichever engine the process ran on."""

import re
import signal

# What programs print when memory has run out; looked for in the end of the log only.
OUT_OF_MEMORY = re.compile(
    r"\bMemoryError\b|std::bad_alloc|[Cc]an(?:'|no)t allocate memory|CUDA out of memory"
)
# What programs print when a process of their group is gone, or has never come, and not they are at fault.
LOST_PEER = re.compile(
    r"\b[Pp]eers?\b"  # Gloo: Connection closed by peer
    r"|[Cc]onnection (?:reset|aborted|refused|lost|closed)|[Bb]roken pipe|[Ss]ocket closed|EOFError"
    r"|[Tt]imed out (?:after \d+ seconds )?waiting|clients joined|DistStoreError|DistNetworkError|Rendezvous"
    r"|could not (?:join its group|reach the master)"  # trainer_kit
    r"|[Rr]emote process exited|ncclRemoteError|Watchdog caught collective operation timeout"
    r"|failed to connect to all addresses|UnavailableError|[Hh]eartbeat|[Bb]arrier|coordination service"
    r"|Horovod has been shut down|lost (?:communication|connection)"
)
GIVE_IT_LESS = (
    "Give it less to hold (a smaller BATCH_SIZE or model, more instances), or let it have more memory."
)
# Signals that come from outside; any other is the program's own fault.
SENT_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


def signal_name(number: int) -> str:
    """The name of a signal as people know it, such as SIGTERM."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
