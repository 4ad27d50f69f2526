"""Objects as bytes, and back without running anything that is in them.

All jobs write to one storage, so the files of a checkpoint may be those of another job. A pickle may name
any function to be called. So tensors and plain values are loaded with `weights_only`, which allows the
types of PyTorch, those named here, and those that the training code has named by
`torch.serialization.add_safe_globals`; and the list of tensors with nothing but what such a list is made of.
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

# NumPy's arrays and numbers, by the names of NumPy 1 and 2: its random state is an array, and metrics
# are often its numbers.
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

# What torch.distributed.checkpoint makes a list of tensors of.
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
    """How what is no tensor becomes bytes, and what may come of such bytes."""

    weights_only: bool
    """Whether types must be named to be loaded; if not, loading may run code."""

    def pack(self, value: object) -> bytes:
        """The bytes of `value`; raises UntrustedTypeError where they could not be loaded again."""
        buffer = io.BytesIO()
        torch.save(value, buffer)
        packed = buffer.getvalue()
        if self.weights_only:
            self.unpack(packed)
        return packed

    def unpack(self, packed: bytes) -> Any:
        """The value of some bytes; raises UntrustedTypeError, and DamagedError where they are none."""
        with only_named_types():
            try:
                return torch.load(io.BytesIO(packed), map_location="cpu", weights_only=self.weights_only)
            except Exception as error:
                if self.weights_only and isinstance(error, pickle.UnpicklingError):
                    raise
                raise DamagedError(f"what it holds cannot be read: {_first_line(error)}") from error


@contextmanager
def only_named_types() -> Iterator[None]:
    """Lets `torch.load` with `weights_only` take the types named here, too.

    Raises UntrustedTypeError for others.
    """
    known = set(get_safe_globals())
    try:
        with safe_globals([each for each in _ALLOWED if each not in known]):
            yield
    except pickle.UnpicklingError as error:
        raise _untrusted(str(error)) from error


def read_metadata(file: IO[bytes]) -> metadata.Metadata:
    """A list of tensors; raises UntrustedTypeError where it holds anything else, and DamagedError."""
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
    """Finds what is named exactly: a dotted name could reach from there to anything."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _METADATA[module, name]
        except KeyError as error:
            raise UntrustedTypeError(
                f"its list of tensors names {module}.{name}, which no such list needs: it is not loaded, "
                "as that may run code"
            ) from error


def _untrusted(message: str) -> UntrustedTypeError:
    """The error for a message of PyTorch, whose own advice is to load it all the same."""
    found = _TYPE.search(message)
    reason = _REASON.search(message)
    what = f"an object of {found[1]}" if found else "more than plain values"
    because = "" if found or not reason else f" ({reason[1].strip()})"
    name = found[1] if found else "TYPE"
    return UntrustedTypeError(
        f"a checkpoint with {what}{because} is not loaded, as that may run code. Keep plain values instead "
        "(numbers, text, lists, dictionaries, sets, tensors, NumPy arrays); or allow the type in the "
        f"training code, before `kept`: torch.serialization.add_safe_globals([{name}]); or, if no other job "
        "can write to the folder, set CHECKPOINT_WEIGHTS_ONLY=false in the configuration of the algorithm"
    )


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
