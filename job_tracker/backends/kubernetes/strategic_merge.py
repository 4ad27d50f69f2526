"""A strategic merge: an overlay laid over a pod, as `kubectl patch` and kustomize do it. Pure.

Objects merge key by key, and null deletes one. The lists named in _MERGE_KEYS merge element by element,
found by the key given there; every other list is replaced. `$patch: replace` and `$patch: delete` in an
object or an element, and `$retainKeys`, mean what they do in Kubernetes; it has other directives, which
are refused rather than misread.
"""

from collections.abc import Mapping, Sequence
from typing import Any

# patchMergeKey of each list in a pod (k8s.io/api/core/v1/types.go).
_MERGE_KEYS = {
    **dict.fromkeys(("containers", "initContainers", "ephemeralContainers", "volumes", "env"), "name"),
    **dict.fromkeys(("imagePullSecrets", "resourceClaims", "schedulingGates"), "name"),
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
_PATCH, _RETAIN_KEYS = "$patch", "$retainKeys"


class OverlayError(ValueError):
    """The overlay is not one, with where and why."""


def merged(under: Mapping[str, Any], overlay: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """`under` with the overlay on it; neither is changed. Raises OverlayError."""
    directive = _directive(overlay, path)
    if directive == "delete":
        return {}
    retained = overlay.get(_RETAIN_KEYS)
    result = {} if directive == "replace" else dict(under)
    if retained is not None:
        if not _is_list(retained):
            raise OverlayError(f"{path}.{_RETAIN_KEYS}".lstrip(".") + ": must be a list of keys")
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in overlay.items():
        place = f"{path}.{key}".lstrip(".")
        if key in (_PATCH, _RETAIN_KEYS):
            continue
        if key.startswith("$"):
            raise OverlayError(f"{place}: only {_PATCH} and {_RETAIN_KEYS} are known")
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _laid_over(result.get(key), value, key, place)
    return result


def _laid_over(below: Any, value: Any, key: str, place: str) -> Any:
    if isinstance(value, Mapping):
        return merged(below if isinstance(below, Mapping) else {}, value, place)
    if _is_list(value) and key in _MERGE_KEYS:
        return _merged_list(below if _is_list(below) else (), value, _MERGE_KEYS[key], place)
    return value


def _merged_list(
    below: Sequence[Mapping[str, Any]], overlay: Sequence[Any], merge_key: str, place: str
) -> list[dict[str, Any]]:
    elements = [(element, f"{place}[{n}]") for n, element in enumerate(overlay)]
    for element, where in elements:
        if not isinstance(element, Mapping):
            raise OverlayError(f"{where}: must be an object with a {merge_key}")
    # An element that is nothing but this directive speaks for the list.
    replaces = any(dict(element) == {_PATCH: "replace"} for element, _ in elements)
    result = [] if replaces else [dict(element) for element in below]
    for element, where in elements:
        if replaces and dict(element) == {_PATCH: "replace"}:
            continue
        if merge_key not in element:
            raise OverlayError(f"{where}: must have a {merge_key}, by which it is found")
        at = next((n for n, each in enumerate(result) if each[merge_key] == element[merge_key]), None)
        if _directive(element, where) == "delete":
            result = [each for each in result if each[merge_key] != element[merge_key]]
        elif at is None:
            result.append(merged({}, element, where))
        else:
            result[at] = merged(result[at], element, where)
    return result


def _directive(overlay: Mapping[str, Any], path: str) -> str | None:
    directive = overlay.get(_PATCH)
    if directive not in (None, "merge", "replace", "delete"):
        raise OverlayError(f"{path}.{_PATCH}".lstrip(".") + ": must be merge, replace or delete")
    return directive


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
