"""Values of secret variables. They are read for each container, and are not stored."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from job_tracker.backends.docker.plan import ContainerPlan
from job_tracker.backends.docker.refusals import secret_missing
from job_tracker.domain.errors import LaunchFailed


def with_secrets(container: ContainerPlan) -> Mapping[str, Any]:
    """Return the container's request with the values of secrets.

    Raises LaunchFailed if a file cannot be read. A line break at the end of a file is removed. A variable in
    `inherit` that is not in the service's own environment is left out.
    """
    values = {name: os.environ[name] for name in container.inherit if name in os.environ}
    for name, path in container.secret_files.items():
        try:
            values[name] = Path(path).read_text().removesuffix("\n")
        except (OSError, ValueError) as error:
            raise LaunchFailed(secret_missing(name, str(error))) from error
    environment = [*container.request["Env"], *(f"{name}={value}" for name, value in values.items())]
    return {**container.request, "Env": environment}
