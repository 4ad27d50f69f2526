"""Converts a tree to two files, and back: the tree as JSON, and its arrays in the order in which the JSON
names them. Here, a tree is nested lists, tuples and dictionaries of arrays and plain values.

Loading runs no code: JSON has only plain values, and arrays are read without pickle. Values of other types
are refused when they are saved.
"""

import base64
import copy
import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from trainer_kit.errors import DamagedError, UnfitError, UntrustedTypeError

Array = NDArray[Any]


def encode(tree: object) -> tuple[Any, list[Array]]:
    """Return `tree` as JSON values, and copies of its arrays.

    Objects with `state_dict` are represented by their state. Raises UntrustedTypeError for values that could
    not be loaded again.
    """
    arrays: list[Array] = []
    return _encoded(tree, "the state", arrays), arrays


def decode(values: Any, arrays: list[Array]) -> Any:
    """Return the tree from the result of `encode`.

    Raises DamagedError if the values are malformed, and UnfitError if they contain tensors of PyTorch but
    this training has not imported PyTorch.
    """
    try:
        return _decoded(values, arrays)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise DamagedError(f"its values are malformed: {type(error).__name__}: {error}") from error


def write_arrays(file: IO[bytes], arrays: Iterable[Array]) -> None:
    """Write arrays one after the other."""
    for array in arrays:
        npy.write_array(file, array, allow_pickle=False)


def read_arrays(file: IO[bytes], count: int) -> list[Array]:
    """Read `count` arrays, and return them. Raises DamagedError if they cannot be read."""
    try:
        return [npy.read_array(file, allow_pickle=False) for _ in range(count)]
    except ValueError as error:
        raise DamagedError(f"its arrays cannot be read: {error}") from error


def put_back(present: Any, saved: Any, place: str) -> Any:
    """Return `saved` in the form of `present`, the value at the same place in the running training.

    Objects with `load_state_dict` and variables with `assign` get their saved content. Arrays of JAX get the
    sharding of the present array. Named tuples, Counter, OrderedDict and defaultdict keep their type. Raises
    UnfitError if the shape of an array or the length of a list of variables differs.
    """
    if hasattr(present, "load_state_dict"):
        present.load_state_dict(saved)
        return present
    if isinstance(present, dict) and isinstance(saved, dict):
        return _of_type_of(
            present,
            {
                **saved,
                **{
                    key: put_back(present[key], saved[key], f"{place}.{key}")
                    for key in present
                    if key in saved
                },
            },
        )
    if isinstance(present, list | tuple) and isinstance(saved, list | tuple):
        return _sequence_put_back(present, saved, place)
    if isinstance(saved, np.ndarray) and hasattr(present, "shape"):
        if tuple(present.shape) != saved.shape:
            raise UnfitError(
                f"the checkpoint does not match this training: {place} has the shape "
                f"{tuple(present.shape)}, and {saved.shape} in the checkpoint"
            )
        return _array_put_back(present, saved)
    return saved


def _encoded(value: Any, place: str, arrays: list[Array]) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if hasattr(value, "state_dict"):
        return _encoded(value.state_dict(), place, arrays)
    if isinstance(value, Mapping):
        strange = [key for key in value if type(key) not in (bool, int, float, str)]
        if strange:
            raise _untrusted(strange[0], f"a key of {place}")
        return {"dict": [[key, _encoded(each, f"{place}.{key}", arrays)] for key, each in value.items()]}
    if isinstance(value, list | tuple):
        each = [_encoded(each, f"{place}[{number}]", arrays) for number, each in enumerate(value)]
        return each if isinstance(value, list) else {"tuple": each}
    if not hasattr(value, "__array__"):
        raise _untrusted(value, place)
    return _array_encoded(value, place, arrays)


def _array_encoded(value: Any, place: str, arrays: list[Array]) -> dict[str, Any]:
    encoded: dict[str, Any] = {"array": len(arrays)}
    torch = sys.modules.get("torch")
    try:
        if torch is not None and isinstance(value, torch.Tensor):
            encoded["kind"] = "tensor"
            array = value.detach().cpu().numpy().copy()
        else:
            array = np.array(np.asarray(value))
    except (TypeError, RuntimeError) as error:  # such as an array of JAX that spans several processes
        raise UntrustedTypeError(
            f"{place} cannot be saved: {error}. Keep an array that this process has as a whole, of a type "
            "that NumPy knows"
        ) from error
    if array.dtype.hasobject or isinstance(value, np.ma.MaskedArray):  # the mask would be lost
        raise _untrusted(value, place)
    if isinstance(value, np.generic):
        encoded["kind"] = "number"
    if array.dtype.isbuiltin == 2:  # a type of another library, such as bfloat16
        encoded["dtype"] = array.dtype.name
        array = array.view(f"u{array.dtype.itemsize}")
    arrays.append(array)
    return encoded


def _decoded(value: Any, arrays: list[Array]) -> Any:
    if isinstance(value, list):
        return [_decoded(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    if "dict" in value:
        return {key: _decoded(each, arrays) for key, each in value["dict"]}
    if "tuple" in value:
        return tuple(_decoded(each, arrays) for each in value["tuple"])
    if "bytes" in value:
        return base64.b64decode(value["bytes"])
    array = arrays[value["array"]]
    if "dtype" in value:
        array = array.view(np.dtype(value["dtype"]))
    if value.get("kind") == "tensor":
        torch = sys.modules.get("torch")
        if torch is None:
            raise UnfitError("the checkpoint has tensors of PyTorch, which this training does not use")
        return torch.from_numpy(array)
    return array[()] if value.get("kind") == "number" else array


def _of_type_of(present: dict[Any, Any], saved: dict[Any, Any]) -> dict[Any, Any]:
    """Return `saved` in the type of `present`, if that is Counter, OrderedDict or defaultdict."""
    if not isinstance(present, Counter | OrderedDict | defaultdict):
        return saved
    restored = copy.copy(present)
    restored.clear()
    for key, value in saved.items():
        restored[key] = value
    return restored


def _sequence_put_back(present: Any, saved: Any, place: str) -> Any:
    if len(present) != len(saved):
        if any(hasattr(each, "assign") for each in present):
            raise UnfitError(
                f"the checkpoint does not match this training: {place} has {len(present)} variables, and "
                f"{len(saved)} in the checkpoint"
            )
        return saved
    pairs = enumerate(zip(present, saved, strict=True))
    each = [put_back(own, value, f"{place}[{number}]") for number, (own, value) in pairs]
    if hasattr(present, "_make"):
        return present._make(each)
    return tuple(each) if isinstance(present, tuple) else each


def _array_put_back(present: Any, saved: Array) -> Any:
    if hasattr(present, "assign"):
        present.assign(saved)
        return present
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(present, jax.Array):
        return jax.device_put(saved, present.sharding)
    return saved


def _untrusted(value: object, place: str) -> UntrustedTypeError:
    return UntrustedTypeError(
        f"{place} is of type {type(value).__module__}.{type(value).__qualname__}, which checkpoints cannot "
        "contain. Keep plain values instead: numbers, text, bytes, lists, tuples, dictionaries, arrays, or "
        "objects with state_dict and load_state_dict"
    )
