"""Evidence of failures that does not depend on the engine: signals, and messages in logs."""

import re
import signal

# Messages of programs that ran out of the memory of a GPU, or of another accelerator.
MEMORY_OF_A_GPU = re.compile(
    r"CUDA out of memory|OutOfMemoryError|RESOURCE_EXHAUSTED: .{0,40}[Oo]ut of memory"
    r"|OOM when allocating|CUBLAS_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation"
)
# Messages of programs that lost a process of their group, or timed out while waiting for it. Such a program's
# failure is only a consequence of another failure.
LOST_PEER = re.compile(
    r"\b[Pp]eers?\b"  # Gloo: Connection closed by peer
    r"|[Cc]onnection (?:reset|aborted|refused|lost|closed)|[Bb]roken pipe|[Ss]ocket closed|EOFError"
    r"|[Tt]imed out (?:after \d+ seconds )?waiting|clients joined|DistStoreError|DistNetworkError|Rendezvous"
    r"|could not (?:join its group|reach the master)"  # trainer_kit
    r"|[Rr]emote process exited|ncclRemoteError|Watchdog caught collective operation timeout"
    r"|failed to connect to all addresses|UnavailableError|[Hh]eartbeat|[Bb]arrier|coordination service"
    r"|Horovod has been shut down|lost (?:communication|connection)"
)
# The error of torchrun in an instance that starts after the others have completed the training.
TRAINING_IS_COMPLETE = re.compile(r"\bRendezvousClosedError\b")
# Messages of programs that do not trust the certificate of a server: Python and curl, uv (rustls), and Go.
UNTRUSTED = re.compile(
    r"CERTIFICATE_VERIFY_FAILED|UnknownIssuer|certificate verify failed|"
    r"unable to get (?:local )?issuer certificate|certificate signed by unknown authority"
)
TRUST_THE_AUTHORITY = (
    "The program does not trust the certificate of this server. If a proxy signs with an authority of your "
    "company, the operator sets SSL_CERT_FILE (for the Python library requests: REQUESTS_CA_BUNDLE) in the "
    "environment of the service to a PEM file with this authority, and adds the variable to process.inherit "
    "or docker.container.inherit. On Kubernetes, a Secret or the image sets it."
)
USE_LESS_MEMORY = (
    "Reduce its memory use (a smaller BATCH_SIZE or model, more instances), or raise its memory limit."
)
# Signals by which other programs or people end a program. Any other signal is an error of the program itself.
SENT_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


def signal_name(number: int) -> str:
    """Return the name of a signal, such as SIGTERM."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
