"""Merges the options of instances: those of all algorithms, of one algorithm, and of a request."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel

Options = TypeVar("Options", bound=BaseModel)


def overlay(kind: type[Options], below: Options, over: BaseModel) -> Options:
    """Return `below`, overridden by the options that `over` sets.

    The result has only the options of `kind`. Tables are merged by key. Lists are joined, but a volume
    replaces another volume at the same path. Other values are replaced.
    """
    values = {name: getattr(below, name) for name in below.model_fields_set & kind.model_fields.keys()}
    for name in over.model_fields_set & kind.model_fields.keys():
        value, under = getattr(over, name), getattr(below, name)
        if name == "volumes":
            paths = {volume.mount_path for volume in value}
            value = (*(volume for volume in under if volume.mount_path not in paths), *value)
        elif isinstance(value, Mapping):
            value = {**under, **value}
        elif isinstance(value, tuple):
            value = (*(each for each in under if each not in value), *value)
        values[name] = value
    return kind(**values)
