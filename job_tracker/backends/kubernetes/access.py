"""Finds the API server's address and the credentials for it: in a kubeconfig, or in the service's own pod."""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config
from kubernetes.aio.config.incluster_config import SERVICE_HOST_ENV_NAME, SERVICE_TOKEN_FILENAME

from job_tracker.domain.errors import BackendRefused, BackendUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The source of the configuration: the given file or context, the service's own pod, or kubectl's
    default.
    """

    kubeconfig: Path | None = None
    context: str | None = None

    @property
    def is_in_cluster(self) -> bool:
        """Whether the service account of the service's own pod is used."""
        explicit = self.kubeconfig is not None or self.context is not None
        in_pod = SERVICE_HOST_ENV_NAME in os.environ and Path(SERVICE_TOKEN_FILENAME).exists()
        return in_pod and not explicit

    def __str__(self) -> str:
        if self.is_in_cluster:
            return "the pod's service account"
        paths = self.kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
        return f"{paths}, context {self.context}" if self.context else str(paths)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Address and credentials in the form of the client library. `refresh` reads short-lived tokens again."""

    configuration: Configuration
    refresh: Callable[[], Awaitable[None]]


async def find_credentials(access: Access) -> Credentials:
    """Read the configuration, and return the credentials.

    Raises BackendRefused, with a message of one line, if the configuration cannot be used.
    """
    configuration = Configuration()
    try:
        if access.is_in_cluster:
            load_incluster_config(client_configuration=configuration)
            _settle_proxy(configuration)
            return Credentials(configuration, _nothing)  # the library refreshes this token
        loader = await load_kube_config(
            config_file=_existing_files(access),
            context=access.context,
            client_configuration=configuration,
            persist_config=False,
        )
    except BackendRefused:
        raise
    except Exception as error:  # the library raises many types of errors for malformed files
        problem = "" if isinstance(error, ConfigException) else "not a kubeconfig: "
        raise BackendRefused(f"kubernetes: {access}: {problem}{_one_line(error)}") from error
    server = urlsplit(configuration.host)
    if server.scheme not in ("http", "https") or not server.hostname:
        # The library accepts a missing or invalid URL, and every call would fail.
        raise BackendRefused(
            f"kubernetes: {access}: not a kubeconfig: its server is {configuration.host!r}; give it as "
            "https://HOST:PORT"
        )

    _settle_proxy(configuration)

    async def refresh() -> None:
        try:
            await loader.load_and_set(configuration)
        except Exception as error:  # an error of any type, for example while a token file is being replaced
            raise BackendUnavailable(f"kubernetes: {access}: {_one_line(error)}") from error

    return Credentials(configuration, refresh)


def _settle_proxy(configuration: Configuration) -> None:
    """Copy the proxy from the environment into the configuration, once.

    Otherwise, the library would read the environment and ~/.netrc for each call.
    """
    server = urlsplit(configuration.host)
    if configuration.proxy is None and not proxy_bypass(server.hostname or ""):
        configuration.proxy = getproxies().get(server.scheme)
    configuration.client_session_kwargs = {"trust_env": False}


def _one_line(error: Exception) -> str:
    """Return the first line of the error, without the content of the file, which the library quotes.

    The content may include tokens and keys.
    """
    lines = str(error).partition("{")[0].splitlines()
    return lines[0] if lines else type(error).__name__


def _existing_files(access: Access) -> str:
    if access.kubeconfig is not None:
        paths = [access.kubeconfig]
    else:
        named = os.environ.get("KUBECONFIG") or "~/.kube/config"
        paths = [Path(path) for path in named.split(os.pathsep) if path]
    found = [path.expanduser() for path in paths if path.expanduser().exists()]
    if not found:
        raise BackendRefused(
            f"kubernetes: {access}: the file does not exist; set kubernetes.kubeconfig to an existing one"
        )
    for path in found:
        if not os.access(path, os.R_OK):
            raise BackendRefused(f"kubernetes: {access}: this user has no permission to read {path}")
    return os.pathsep.join(map(str, found))


async def _nothing() -> None:
    pass
