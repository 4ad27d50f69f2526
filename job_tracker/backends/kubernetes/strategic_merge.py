"""A strategic merge of an overlay into a pod, as in `kubectl patch` and kustomize. Pure functions.

Objects merge key by key, and null deletes a key. The lists in _MERGE_KEYS merge element by element, matched
by the key given there. Any other list is replaced as a whole. `$patch` (merge, replace or delete) in an
object or an element, and `$retainKeys`, work as in Kubernetes. Other directives are refused.
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
    """The overlay is invalid. The message says where and why."""


def merged(under: Mapping[str, Any], overlay: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return `under` with the overlay merged in; neither is changed.

    `path` is the place of `under` in the pod, for messages. Raises OverlayError if the overlay is invalid.
    """
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
            raise OverlayError(f"{place}: unknown directive; use {_PATCH} or {_RETAIN_KEYS}")
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _overlay_value(result.get(key), value, key, place)
    return result


def _overlay_value(below: Any, value: Any, key: str, place: str) -> Any:
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
    # An element that has only `$patch: replace` applies to the whole list.
    replaces = any(dict(element) == {_PATCH: "replace"} for element, _ in elements)
    result = [] if replaces else [dict(element) for element in below]
    for element, where in elements:
        if replaces and dict(element) == {_PATCH: "replace"}:
            continue
        if merge_key not in element:
            raise OverlayError(f"{where}: {merge_key}, which identifies the element, is missing")
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
        raise OverlayError(
            f"{path}.{_PATCH}".lstrip(".") + f": is {directive!r}; use merge, replace or delete"
        )
    return directive


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
