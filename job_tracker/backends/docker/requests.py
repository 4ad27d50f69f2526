"""The request that creates a container (POST /containers/create). Pure functions, without I/O."""

from collections.abc import Mapping, Sequence
from typing import Any

from job_tracker.backends.docker.options import GPU, MEMORY, ContainerOptions
from job_tracker.backends.shared.instances import HOME, TEMPORARY, WORK
from job_tracker.catalog.syntax import CPU, amount

_NANO = 10**9
_LOG_FILES = 2
# Options of the mounts of HOME and TMPDIR. Files there can be executed, which is not the default:
# just-in-time compilers load their kernels from these folders.
_SCRATCH = "rw,exec,nosuid,nodev,mode=1777"


def container(
    name: str,
    *,
    image: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    labels: Mapping[str, str],
    network: str,
    is_alone: bool,
    extra_hosts: Mapping[str, str],
    most_log: int,
    options: ContainerOptions,
    has_program: bool = False,
    environments: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the request that creates a container.

    Without a `command`, the container runs the command of its image.

    With `has_program`, the image has the files of an uploaded program in its folder HOME. The container then
    has an anonymous volume there, into which the engine copies these files. The volume is removed with the
    container.

    `environments` is the mount with the Python environments of the project. On the group's network, other
    containers find this container by its name. With `is_alone`, the group has a single container and no
    network of its own: `network` is then a network that exists already.
    """
    scratch = (TEMPORARY,) if has_program else (HOME, TEMPORARY)
    program: list[dict[str, Any]] = [{"Type": "volume", "Target": HOME}] if has_program else []
    if environments:
        program.append(dict(environments))
    return {
        "Hostname": name,
        "Image": image,
        # As in pods, the command replaces the entry point and the arguments of the image.
        **({"Entrypoint": list(command)} if command else {}),
        **_present("User", str(options.run_as_user or "")),
        **_present("WorkingDir", WORK if has_program else options.working_directory),
        "Env": [f"{variable}={value}" for variable, value in environment.items()],
        "Labels": {**options.labels, **labels},
        "HostConfig": {
            "Init": True,  # a program that runs as process 1 ignores signals for which it has no handler
            "NetworkMode": network,
            **_present("ExtraHosts", [f"{host}:{address}" for host, address in extra_hosts.items()]),
            "RestartPolicy": {"Name": "no"},  # the other ranks would wait for a restarted rank for ever
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": True,
            "Tmpfs": dict.fromkeys(scratch, f"{_SCRATCH},size={_bytes(options.scratch_size)}"),
            "ShmSize": _bytes(options.shm_size),
            "PidsLimit": options.pids_limit,
            **_limits(options.resources),
            **_present("Mounts", [*program, *_mounts(options)]),
            "LogConfig": {
                "Type": "json-file",  # a log of this type has times, and its size can be limited
                "Config": {"max-size": str(most_log // _LOG_FILES), "max-file": str(_LOG_FILES)},
            },
        },
        **({} if is_alone else {"NetworkingConfig": {"EndpointsConfig": {network: {"Aliases": [name]}}}}),
    }


def _limits(resources: Mapping[str, str]) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if CPU in resources:
        limits["NanoCpus"] = int(amount(resources[CPU]) * _NANO)
    if MEMORY in resources:
        # Swap counts as memory: a training process that swaps makes no progress.
        limits["Memory"] = limits["MemorySwap"] = _bytes(resources[MEMORY])
    if GPU in resources:
        limits["DeviceRequests"] = [{"Count": _bytes(resources[GPU]), "Capabilities": [["gpu"]]}]
    return limits


def _mounts(options: ContainerOptions) -> list[dict[str, Any]]:
    return [
        {
            "Type": "bind" if volume.source.startswith("/") else "volume",
            "Source": volume.source,
            "Target": volume.mount_path,
            "ReadOnly": volume.read_only,
        }
        for volume in options.volumes
    ]


def _bytes(quantity: str) -> int:
    return int(amount(quantity))


def _present(key: str, value: Any) -> dict[str, Any]:
    """Return a dictionary with the entry; an empty one if the value is empty."""
    return {key: value} if value else {}
