"""A Docker engine for tests: the running one, or one that tests/cluster/docker-up starts."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.cluster import PROGRAM_IMAGE

_SCRIPTS: Final = Path(__file__).parents[1] / "cluster"
_ENVIRONMENT: Final = dict(os.environ)
"""The environment at the start of this process: an engine outlives the test that restarts it."""


class NoEngineHere(Exception):
    """No Docker engine runs, and none can be started. The message has the reason."""


class CommandFailed(Exception):
    """A command failed or timed out."""


@dataclass
class DockerEngine:
    """A running engine. `is_ours`: it was started for tests, which may stop it."""

    url: str
    is_ours: bool
    _disturbed: bool = field(default=False)

    @classmethod
    def up(cls) -> "DockerEngine":
        """Return an engine with the program image. Raises NoEngineHere. The first call may take a minute."""
        if shutil.which("docker") and _answers():
            engine = cls(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"), is_ours=False)
            recipe, context = _SCRIPTS / "images/Dockerfile", _SCRIPTS.parent / "support"
            engine.docker("build", "-q", "-t", PROGRAM_IMAGE, "-f", str(recipe), str(context))
            return engine
        try:
            engine = cls(_start(), is_ours=True)
        except CommandFailed as error:
            raise NoEngineHere(f"no Docker engine answers, and none can be started: {error}") from error
        archive = _run(str(_SCRIPTS / "images/program-image"), PROGRAM_IMAGE, timeout=300).strip()
        engine.docker("load", "-qi", archive, timeout=110)
        return engine

    def down(self) -> None:
        """Stop the engine if it is ours."""
        if self.is_ours:
            _run(str(_SCRIPTS / "docker-down"))

    def stop(self) -> None:
        """Stop the engine and all its containers."""
        self._disturbed = True
        self.down()

    def start(self) -> None:
        """Start the engine again."""
        _start()
        self._disturbed = False

    def heal(self) -> None:
        """Start the engine if a test has stopped it."""
        if self._disturbed:
            self.start()

    def docker(self, *arguments: str, timeout: float = 60) -> str:
        """Run a docker command and return its output."""
        return _run("docker", "--host", self.url, *arguments, timeout=timeout)

    def inspect(self, *names: str) -> list[dict[str, Any]]:
        """Return containers as the engine describes them."""
        found: list[dict[str, Any]] = json.loads(self.docker("inspect", *names))
        return found

    def left(self, instance: str = "test") -> list[str]:
        """Return the names of the containers, networks and volumes of the service with this name."""
        mine = ("--filter", f"label=app.kubernetes.io/instance={instance}", "--format")
        containers = self.docker("ps", "-a", *mine, "{{.Names}}").split()
        networks = self.docker("network", "ls", *mine, "{{.Name}}").split()
        return sorted([*containers, *networks, *self.docker("volume", "ls", *mine, "{{.Name}}").split()])

    def clear(self, instance: str = "test") -> None:
        """Remove all containers, networks, volumes and images of the service with this name."""
        mine = ("--filter", f"label=app.kubernetes.io/instance={instance}", "-q")
        for kind, how in (("container", ("rm", "-fv")), ("network", ("rm",)), ("volume", ("rm",))):
            everything = ("-a",) if kind == "container" else ()
            if found := self.docker(kind, "ls", *everything, *mine).split():
                self.docker(kind, *how, *found)
        if images := self.docker("image", "ls", *mine).split():
            self.docker("image", "rm", "-f", *set(images))


def _answers() -> bool:
    try:
        _run("docker", "info", timeout=10)
    except CommandFailed:
        return False
    return True


def _start() -> str:
    """Start the engine of the tests unless it runs, and return its URL."""
    exports = _run(str(_SCRIPTS / "docker-up"), timeout=600)
    return next(word.split("=", 1)[1] for word in exports.split() if word.startswith("DOCKER_HOST="))


def _run(*command: str, timeout: float = 60) -> str:
    # In a separate session, so that Ctrl-C on a test run does not stop the engine.
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=_ENVIRONMENT,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(f"{' '.join(command)}: not done after {timeout:g} s") from error
    if done.returncode:
        raise CommandFailed(f"{' '.join(command)}: status {done.returncode}\n{done.stderr}")
    return done.stdout
