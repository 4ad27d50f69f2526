"""Serializes objects. Loads them without running code from the data, unless `weights_only` is false.

All jobs write to one storage, so another job may have written the files of a checkpoint, and a pickle can
call any function. So tensors and plain values are loaded with `weights_only`, which allows only the
types of PyTorch, the types listed here, and those that the training code allows with
`torch.serialization.add_safe_globals`. The list of a checkpoint's tensors (its file .metadata) is a pickle,
too. In this list, only the types that such lists need are allowed.
"""

import io
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, cast

import numpy as np
import torch
from torch.distributed.checkpoint import filesystem, metadata
from torch.serialization import get_safe_globals, safe_globals

from trainer_kit.errors import DamagedError, UntrustedTypeError

_Named = Callable[..., Any] | tuple[Callable[..., Any], str]

# NumPy's arrays and numbers, under the names of NumPy 1 and 2. The state of NumPy's random generator is an
# array, and metrics are often NumPy's numbers.
_NUMPY_FUNCTIONS: tuple[tuple[Callable[..., Any], str], ...] = (
    (cast(Callable[..., Any], np.empty(0).__reduce__()[0]), "_reconstruct"),
    (cast(Callable[..., Any], np.float64().__reduce__()[0]), "scalar"),
)
_NUMPY: tuple[_Named, ...] = (
    np.ndarray,
    np.dtype,
    *{type(np.dtype(code)) for code in np.typecodes["All"] if code != "O"},
    *(
        (function, f"numpy.{package}.multiarray.{name}")
        for package in ("core", "_core")
        for function, name in _NUMPY_FUNCTIONS
    ),
)

_ALLOWED: tuple[_Named, ...] = (bytes, frozenset, *_NUMPY)

# The types that occur in the lists of tensors of torch.distributed.checkpoint.
_METADATA: dict[tuple[str, str], Any] = {
    (each.__module__, each.__qualname__): each
    for each in (
        metadata.Metadata,
        metadata.TensorStorageMetadata,
        metadata.BytesStorageMetadata,
        metadata.ChunkStorageMetadata,
        metadata.TensorProperties,
        metadata.MetadataIndex,
        metadata.StorageMeta,
        metadata._MEM_FORMAT_ENCODING,
        filesystem._StorageInfo,
        torch.Size,
        torch.serialization._get_layout,
    )
} | {("torch", name): value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}

_TYPE = re.compile(r"GLOBAL ([\w.]+)")
_REASON = re.compile(r"WeightsUnpickler error:\s*(.+)")


@dataclass(frozen=True)
class Packing:
    """Serialization of objects that are not tensors."""

    weights_only: bool
    """Whether only allowed types are loaded. If false, loading may run code."""

    def pack(self, value: object) -> bytes:
        """Return `value` as bytes.

        With `weights_only`, raises UntrustedTypeError if the value could not be loaded again.
        """
        buffer = io.BytesIO()
        torch.save(value, buffer)
        packed = buffer.getvalue()
        if self.weights_only:
            self.unpack(packed)
        return packed

    def unpack(self, packed: bytes) -> Any:
        """Return the value from its bytes.

        Raises UntrustedTypeError for types that are not allowed, and DamagedError if `packed` is unreadable.
        """
        with only_named_types():
            try:
                return torch.load(io.BytesIO(packed), map_location="cpu", weights_only=self.weights_only)
            except Exception as error:
                if self.weights_only and isinstance(error, pickle.UnpicklingError):
                    raise
                raise DamagedError(f"its content cannot be read: {_first_line(error)}") from error


@contextmanager
def only_named_types() -> Iterator[None]:
    """In the block, allow `torch.load` with `weights_only` to load the types listed in this module.

    Raises UntrustedTypeError for other types.
    """
    known = set(get_safe_globals())
    try:
        with safe_globals([each for each in _ALLOWED if each not in known]):
            yield
    except pickle.UnpicklingError as error:
        raise _untrusted(str(error)) from error


def read_metadata(file: IO[bytes]) -> metadata.Metadata:
    """Return the list of tensors in a file.

    Raises UntrustedTypeError if the list contains types that are not in _METADATA, and DamagedError if it
    cannot be read.
    """
    try:
        value = _MetadataUnpickler(file).load()
    except UntrustedTypeError:
        raise
    except Exception as error:
        raise DamagedError(f"its list of tensors cannot be read: {_first_line(error)}") from error
    if not isinstance(value, metadata.Metadata):
        raise DamagedError(f"its list of tensors is a {type(value).__name__}")
    return value


class _MetadataUnpickler(pickle.Unpickler):
    """Loads only the names in _METADATA. It does not follow dotted names, which can reach any object."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _METADATA[module, name]
        except KeyError as error:
            raise UntrustedTypeError(
                f"its list of tensors names {module}.{name}, which such lists do not use: it is not loaded, "
                "because that may run code"
            ) from error


def _untrusted(message: str) -> UntrustedTypeError:
    """Return an error for a message of PyTorch, whose own advice is to load the object unsafely."""
    found = _TYPE.search(message)
    reason = _REASON.search(message)
    content = f"an object of {found[1]}" if found else "more than plain values"
    because = "" if found or not reason else f" ({reason[1].strip()})"
    name = found[1] if found else "TYPE"
    return UntrustedTypeError(
        f"a checkpoint with {content}{because} is not loaded, because that may run code. Keep plain values "
        "instead (numbers, text, lists, dictionaries, sets, tensors, NumPy arrays). Or allow the type in the "
        f"training code before `kept`: torch.serialization.add_safe_globals([{name}]). Or, if no other job "
        "can write to the folder, set CHECKPOINT_WEIGHTS_ONLY=false in the configuration of the algorithm"
    )


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
