import signal
import subprocess
import sys

import pytest

from tests.support.patience import PATIENCE
from training_service.stop_signal import SIGNALS

PROGRAM = """
import asyncio, signal, sys
from training_service.stop_signal import stop_signal

async def serve():
    stopping = stop_signal()
    if "stop" in sys.argv:
        signal.raise_signal(signal.SIGTERM)
        await stopping.wait()
        print("stopped")

asyncio.run(serve())
signal.raise_signal(int(sys.argv[1]))
print("goes on")
"""


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(("arguments", "printed"), [(["stop"], "stopped\n"), ([], "")])
def test_a_signal_after_the_end_of_the_loop_ends_the_process_without_a_traceback(
    number: signal.Signals, arguments: list[str], printed: str
) -> None:
    command = [sys.executable, "-u", "-c", PROGRAM, str(int(number)), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + number, printed, "")
