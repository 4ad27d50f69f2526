"""A Docker engine for tests: the running one, or one that tests/cluster/docker-up starts."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from docker import APIClient
from docker.errors import DockerException, NotFound
from requests.exceptions import RequestException

from tests.support.cluster import PROGRAM_IMAGE
from tests.support.frozen import freeze

_SCRIPTS: Final = Path(__file__).parents[1] / "cluster"
_ENVIRONMENT: Final = dict(os.environ)
"""The environment at the start of this process: an engine outlives the test that restarts it."""


class NoEngineHere(Exception):
    """No Docker engine runs, and none can be started. The message has the reason."""


class CommandFailed(Exception):
    """A command failed or timed out."""


@dataclass
class DockerEngine:
    """A running engine. `is_ours` says that it was started for tests, which may stop it."""

    url: str
    is_ours: bool
    _disturbed: bool = field(default=False)

    @classmethod
    def up(cls) -> "DockerEngine":
        """Return an engine with the program image, and without objects of an earlier run if it is ours.

        The engine's data outlives a run. A killed run leaves groups, which the tests of the next run would
        find. The first call may take a minute. Raises NoEngineHere.
        """
        if shutil.which("docker") and _answers():
            engine = cls(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"), is_ours=False)
            recipe, context = _SCRIPTS / "images/Dockerfile", _SCRIPTS.parent / "support"
            engine.docker("build", "-q", "-t", PROGRAM_IMAGE, "-f", str(recipe), str(context))
            return engine
        try:
            engine = cls(_start(), is_ours=True)
        except CommandFailed as error:
            raise NoEngineHere(f"no Docker engine answers, and none can be started: {error}") from error
        engine.clear(None)
        archive = _run(str(_SCRIPTS / "images/program-image"), PROGRAM_IMAGE, timeout=300).strip()
        engine.docker("load", "-qi", archive, timeout=110)
        return engine

    def down(self) -> None:
        """Stop the engine if it is ours."""
        if self.is_ours:
            _run(str(_SCRIPTS / "docker-down"))

    def stop(self) -> None:
        """Stop the engine and all its containers, if the engine is ours."""
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

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Freeze the engine during the block. It must be ours."""
        assert self.is_ours
        pid = int(Path(self.url.removeprefix("unix://")).with_name("docker.pid").read_text())
        freeze(pid)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def docker(self, *arguments: str, timeout: float = 60) -> str:
        """Run a docker command and return its output."""
        return _run("docker", "--host", self.url, *arguments, timeout=timeout)

    def inspect(self, *names: str) -> list[dict[str, Any]]:
        """Return the engine's descriptions of these containers."""
        found: list[dict[str, Any]] = json.loads(self.docker("inspect", *names))
        return found

    def left(self, instance: str = "test") -> list[str]:
        """Return the names of the containers, networks and volumes of the service with this name."""
        with self._api() as api:
            found = [
                *api.containers(all=True, filters=_of(instance)),
                *api.networks(filters=_of(instance)),
                *(api.volumes(filters=_of(instance))["Volumes"] or ()),
            ]
        return sorted(each["Names"][0].lstrip("/") if "Names" in each else each["Name"] for each in found)

    def clear(self, instance: str | None = "test") -> None:
        """Remove all containers, networks, volumes and images of the service with this name; None: of all
        services.
        """
        mine = _of(instance)
        with self._api() as api:
            for container in api.containers(all=True, filters=mine):
                with suppress(NotFound):  # the object was being removed
                    api.remove_container(container["Id"], v=True, force=True)
            for network in api.networks(filters=mine):
                api.remove_network(network["Id"])
            for volume in api.volumes(filters=mine)["Volumes"] or ():
                api.remove_volume(volume["Name"])
            for image in {each["Id"] for each in api.images(filters=mine)}:
                api.remove_image(image, force=True)

    @contextmanager
    def _api(self) -> Iterator[APIClient]:
        """Yield a client of the engine's API.

        The docker command would take ten times as long for each list.
        """
        api = APIClient(base_url=self.url, timeout=60)
        try:
            yield api
        except (DockerException, RequestException) as error:
            raise CommandFailed(f"{self.url}: {error}") from error
        finally:
            api.close()


def _of(instance: str | None) -> dict[str, str]:
    return {"label": "app.kubernetes.io/instance" + (f"={instance}" if instance is not None else "")}


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
