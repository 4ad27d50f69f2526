"""Encodes job specs as JSON without default values, and reads the specs of earlier versions."""

import json
from typing import Any

from pydantic import TypeAdapter

from job_tracker.domain import naming
from job_tracker.domain.job_spec import JobSpec

_SPEC = TypeAdapter(JobSpec)
_BEGINNING = b'{"group":'


def dumped(spec: JobSpec) -> str:
    """Return the spec as JSON."""
    return _SPEC.dump_json(spec, exclude_defaults=True).decode()


def loaded(text: bytes | str) -> JobSpec:
    """Return the spec in a JSON text that this version of the service, or an earlier one, has stored."""
    text = text.encode() if isinstance(text, str) else text
    if text.startswith(_BEGINNING):
        return _SPEC.validate_json(text)
    return _SPEC.validate_python(_of_before_groups(json.loads(text)))


def _of_before_groups(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of an old spec, with a group that is made from them.

    Versions that resolved jobs at launch stored specs without a group.
    """
    instances = values.pop("instances")
    roles = values.pop("roles", None) or {naming.MASTER: 1, naming.WORKER: instances - 1}
    group = {
        "roles": {role: count for role, count in roles.items() if count},
        "trainers": values.get("pod_options", {}),
        "elastic": values.pop("elastic", None),
        "ends_with_master": values.pop("ends_with_master", False),
    }
    return {"group": group, **values}
