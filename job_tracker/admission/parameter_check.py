"""Runs the `check` program of an algorithm, which checks the parameters of a request."""

import asyncio
import logging
import os
import signal
from collections.abc import Mapping
from contextlib import suppress

from job_tracker.catalog import Catalog
from job_tracker.common.printable import quoted
from job_tracker.common.turns import FairTurns
from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import InvalidField, LimitExceeded
from job_tracker.domain.job_spec import JobSpec

log = logging.getLogger(__name__)

REFUSED = os.EX_DATAERR
"""The exit code of a program that refuses the parameters: 65, as in sysexits.h."""

_AT_ONCE = 4
_OF_ONE_CALLER = 3
_SECONDS = 10.0
_LONGEST_REASON = 1000


class ParameterCheck:
    """Runs the `check` program of algorithms that have one.

    Only exit code REFUSED refuses the parameters. They are accepted if the program ends with any other code,
    takes too long, or cannot be run.

    The program's environment has the algorithm's variables, the job's parameters, WORLD_SIZE and PATH. It has
    no secrets, and no variables from the environment of the service.
    """

    def __init__(
        self,
        catalog: Catalog,
        path: str = os.defpath,
        seconds: float = _SECONDS,
        turns: FairTurns | None = None,
    ) -> None:
        """`path` is the PATH of check programs; `seconds` bounds a check, including the wait for a turn."""
        self._catalog = catalog
        self._path = path
        self._seconds = seconds
        self._turns = turns or FairTurns(_AT_ONCE, _OF_ONE_CALLER)

    async def check(self, caller: Caller, spec: JobSpec) -> None:
        """Run the `check` program of the job's algorithm, if it has one.

        Raises InvalidField if the program refuses the parameters; the message is the last line of its stderr.

        Parameters are accepted unchecked if the program fails or is too slow. Raises LimitExceeded if the
        check gets no turn within half of the time that a check may take.
        """
        if spec.program is not None:
            return
        entry = self._catalog.algorithms(spec.project).get(spec.algorithm)
        algorithm = entry.value if entry else None  # None: the algorithm was just removed
        if algorithm is None or not algorithm.check:
            return
        environment = {
            **spec.group.environment,
            **spec.environment,
            "WORLD_SIZE": str(spec.group.training_processes),
            "PATH": self._path,
        }
        end = asyncio.get_running_loop().time() + self._seconds
        await self._wait_for_turn(caller)
        try:
            async with asyncio.timeout_at(end):
                code, output = await _run(algorithm.check, environment)
        except OSError as error:  # this includes TimeoutError
            code, output = None, str(error) or f"no answer within {self._seconds:g} s"
        finally:
            self._turns.give(caller.key)
        lines = output.strip().splitlines() or [""]
        if code == REFUSED:
            raise InvalidField("parameters", _printable(lines[-1]) or "refused by the algorithm")
        if code != 0:
            log.warning(
                "algorithms.%s.check failed, so the parameters are accepted unchecked: %s",
                spec.algorithm, quoted(lines[-1] or f"exit code {code}"),
            )  # fmt: skip

    async def _wait_for_turn(self, caller: Caller) -> None:
        patience = self._seconds / 2
        try:
            async with asyncio.timeout(patience):
                await self._turns.take(caller.key)
        except TimeoutError as error:
            raise LimitExceeded(
                f"the parameters could not be checked within {patience:g} s, because {self._turns.length} "
                f"other requests are being checked or waiting. At most {self._turns.at_once} are checked "
                f"at once, and {self._turns.for_one} from one caller. Send fewer requests at once, or try "
                "again later",
                limit="check",
                retry_after=patience,
            ) from error


async def _run(command: tuple[str, ...], environment: Mapping[str, str]) -> tuple[int | None, str]:
    """Run the command; return its exit code and its stderr."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, output = await process.communicate()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                # Not process.kill: it may reap a process that has just ended, and asyncio then logs an
                # unknown child (https://github.com/python/cpython/issues/127049).
                os.kill(process.pid, signal.SIGKILL)
            await process.wait()
    return process.returncode, output.decode(errors="replace")


def _printable(line: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in line)[:_LONGEST_REASON]
