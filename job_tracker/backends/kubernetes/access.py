"""How the API server is reached and who we are to it: out of a kubeconfig, or out of our own pod."""

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
    """Where to look: the named file or context; else our own pod; else where kubectl looks."""

    kubeconfig: Path | None = None
    context: str | None = None

    @property
    def is_in_cluster(self) -> bool:
        """Whether the service account of our own pod is taken."""
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
    """What was found, in the client library's form; `refresh` reads short-lived tokens again."""

    configuration: Configuration
    refresh: Callable[[], Awaitable[None]]


async def find_credentials(access: Access) -> Credentials:
    """Read the configuration. Raises BackendRefused, in one line."""
    configuration = Configuration()
    try:
        if access.is_in_cluster:
            load_incluster_config(client_configuration=configuration)
            _settle_proxy(configuration)
            return Credentials(configuration, _nothing)  # it reads its token again by itself
        loader = await load_kube_config(
            config_file=_existing_files(access),
            context=access.context,
            client_configuration=configuration,
            persist_config=False,
        )
    except BackendRefused:
        raise
    except Exception as error:  # a malformed file fails in the library in as many ways as there are
        what = "" if isinstance(error, ConfigException) else "not a kubeconfig: "
        raise BackendRefused(f"kubernetes: {access}: {what}{_words(error)}") from error
    server = urlsplit(configuration.host)
    if server.scheme not in ("http", "https") or not server.hostname:
        # The library takes one that is missing, or that is no URL, and every call would fail.
        raise BackendRefused(
            f"kubernetes: {access}: not a kubeconfig: its server is {configuration.host!r}; give it as "
            "https://HOST:PORT"
        )

    _settle_proxy(configuration)

    async def refresh() -> None:
        try:
            await loader.load_and_set(configuration)
        except Exception as error:  # as above; the file of a token may be being replaced just now
            raise BackendUnavailable(f"kubernetes: {access}: {_words(error)}") from error

    return Credentials(configuration, refresh)


def _settle_proxy(configuration: Configuration) -> None:
    """Look for a proxy in the environment once: the library looks at each call, and for ~/.netrc as well."""
    server = urlsplit(configuration.host)
    if configuration.proxy is None and not proxy_bypass(server.hostname or ""):
        configuration.proxy = getproxies().get(server.scheme)
    configuration.client_session_kwargs = {"trust_env": False}


def _words(error: Exception) -> str:
    """One line. What the library says may end in a part of the file as it is, with its tokens and keys."""
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
            f"kubernetes: {access}: there is no such file; name a kubeconfig in kubernetes.kubeconfig"
        )
    for path in found:
        if not os.access(path, os.R_OK):
            raise BackendRefused(f"kubernetes: {access}: the file may not be read by this user")
    return os.pathsep.join(map(str, found))


async def _nothing() -> None:
    pass
