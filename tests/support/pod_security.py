"""A function that checks the spec of a pod by the restricted Pod Security Standard.

https://kubernetes.io/docs/concepts/security/pod-security-standards/ as of Kubernetes 1.34. Clusters before
1.25 do not enforce it, so tests cannot use them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Part = Mapping[str, Any]

_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
_SAFE_SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
}
_SELINUX_TYPES = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}


def violations(spec: Part) -> list[str]:
    """Return the fields of the pod's spec that are forbidden or missing; empty if the pod conforms to the
    standard.
    """
    found = [*_of_pod(spec)]
    pod = spec.get("securityContext") or {}
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            found += [f"{container['name']}: {each}" for each in _of_container(container, pod)]
    return found


def _of_pod(spec: Part) -> Iterator[str]:
    yield from (name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name))
    context = spec.get("securityContext") or {}
    yield from _of_context(context)
    for sysctl in context.get("sysctls") or ():
        if sysctl["name"] not in _SAFE_SYSCTLS:
            yield f"sysctl {sysctl['name']}"
    for volume in spec.get("volumes") or ():
        if not set(volume) - {"name"} <= _VOLUMES:
            yield f"volume {volume['name']}"


def _of_context(context: Part) -> Iterator[str]:
    """Yield the forbidden fields of a security context, of a pod or a container."""
    if context.get("runAsUser") == 0:
        yield "runAsUser"
    if (context.get("windowsOptions") or {}).get("hostProcess"):
        yield "hostProcess"
    labels = context.get("seLinuxOptions") or {}
    if labels.get("user") or labels.get("role") or labels.get("type", "") not in _SELINUX_TYPES:
        yield "seLinuxOptions"
    if (context.get("appArmorProfile") or {}).get("type") == "Unconfined":
        yield "appArmorProfile"


def _of_container(container: Part, pod: Part) -> Iterator[str]:
    """Yield the violations of one container. `pod` is the pod's security context, which has the defaults."""
    own = container.get("securityContext") or {}
    yield from _of_context(own)
    if own.get("privileged"):
        yield "privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation"
    if own.get("procMount", "Default") != "Default":
        yield "procMount"
    if own.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
        yield "runAsNonRoot"
    profile = own.get("seccompProfile") or pod.get("seccompProfile") or {}
    if profile.get("type") not in ("RuntimeDefault", "Localhost"):
        yield "seccompProfile"
    capabilities = own.get("capabilities") or {}
    if "ALL" not in capabilities.get("drop", ()):
        yield "capabilities.drop"
    if set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}:
        yield "capabilities.add"
    if any(port.get("hostPort") for port in container.get("ports") or ()):
        yield "hostPort"
