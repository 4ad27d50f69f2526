"""Trees of arrays and plain values survive as files, and other values are refused."""

import io
import json
from collections import Counter, OrderedDict, defaultdict
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from trainer_kit.checkpoints import tree
from trainer_kit.errors import DamagedError, UnfitError, UntrustedTypeError


class Moments(NamedTuple):
    mean: Any
    steps: int


class Variable:
    """A variable like those of TensorFlow and Keras."""

    def __init__(self, value: list[float]) -> None:
        self.value = np.array(value)
        self.shape = self.value.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.value

    def assign(self, value: np.ndarray) -> None:
        self.value = value


def again(value: object) -> Any:
    """Return the value after it was written to files and read again."""
    values, arrays = tree.encode(value)
    file = io.BytesIO()
    tree.write_arrays(file, arrays)
    file.seek(0)
    return tree.decode(json.loads(json.dumps(values)), tree.read_arrays(file, len(arrays)))


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"text": "é", 7: [True, 2, -0.1, None], "nothing": {}, "empty": [], "of two": (1, (2.5,))},
        b"\x00\xff",
        float("inf"),
        2**200,
        OrderedDict(last=1, first=2),
    ],
    ids=repr,
)
def test_plain_values_stay_the_same(value: object) -> None:
    assert again(value) == value


def test_arrays_keep_type_shape_and_every_bit() -> None:
    rng = np.random.default_rng(1)
    arrays: list[np.ndarray] = [
        rng.random((3, 4)).astype(np.float32),
        np.asfortranarray(rng.random((2, 3))),
        np.array(5, np.int8),
        np.zeros((0, 2), bool),
        rng.random(4) + 1j,
    ]
    for array, read in zip(arrays, again(arrays), strict=True):
        assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, array.shape, array.tobytes())
    number = again(np.float32(0.1))
    assert (type(number), number) == (np.float32, np.float32(0.1))


def test_tensors_of_pytorch_stay_tensors() -> None:
    weights = torch.rand(2, 3, requires_grad=True)
    read = again({"weights": weights})["weights"]
    assert isinstance(read, torch.Tensor)
    assert torch.equal(read, weights)


def test_a_copy_does_not_change_with_the_training() -> None:
    weights = np.zeros(3)
    _, [copy] = tree.encode({"weights": weights})
    weights += 1
    assert copy.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"best": {1, 2}}, "the state.best is of type builtins.set"),
        ({"loss": np.ma.array([1, 2], mask=[False, True])}, "the state.loss is of type numpy.ma.MaskedArray"),
        ([np.array([object()])], r"the state\[0\] is of type numpy.ndarray"),
        ({(1, 2): 3}, "a key of the state is of type builtins.tuple"),
        ({"file": io.BytesIO()}, "the state.file is of type _io.BytesIO"),
        ({"half": torch.zeros(2, dtype=torch.bfloat16)}, "the state.half cannot be saved"),
    ],
    ids=["set", "mask", "objects", "key", "file", "type without NumPy"],
)
def test_other_values_are_refused_by_their_place(value: object, message: str) -> None:
    with pytest.raises(UntrustedTypeError, match=message):
        tree.encode(value)


@pytest.mark.parametrize(
    "values",
    [{"array": 1}, {"array": "x"}, {"unknown": 1}, {"dict": [[1]]}, {"array": 0, "dtype": "O"}, {"bytes": 3}],
    ids=str,
)
def test_malformed_values_are_damage(values: object) -> None:
    with pytest.raises(DamagedError):
        tree.decode(values, [np.zeros(1)])


def test_a_pickle_among_the_arrays_is_not_loaded() -> None:
    file = io.BytesIO()
    np.save(file, np.array([{}], object), allow_pickle=True)
    file.seek(0)
    with pytest.raises(DamagedError):
        tree.read_arrays(file, 1)


def test_saved_values_take_the_form_of_the_present_ones() -> None:
    variable = Variable([0, 0])
    present = {"moments": Moments(np.zeros(2), 0), "variables": [variable], "losses": [], "pair": (0, 1)}
    saved = again({"moments": Moments(np.ones(2), 3), "variables": [Variable([1, 2])], "losses": [0.5]})
    back = tree.put_back(present, saved, "state")
    assert isinstance(back["moments"], Moments)
    assert back["moments"].steps == 3
    assert back["variables"][0] is variable
    assert variable.value.tolist() == [1, 2]
    assert back["losses"] == [0.5]


def test_dictionaries_of_the_standard_library_keep_their_type_and_default() -> None:
    saved = {"words": Counter("aab"), "scores": defaultdict(list, a=[1]), "order": OrderedDict(b=1, a=2)}
    present = {"words": Counter("x"), "scores": defaultdict(list), "order": OrderedDict[str, int]()}
    back = tree.put_back(present, again(saved), "state")
    assert back == saved
    assert {name: type(value) for name, value in back.items()} == {
        name: type(value) for name, value in saved.items()
    }
    back["words"]["c"] += 1
    back["scores"]["b"].append(2)
    assert present["words"] == Counter("x")


@pytest.mark.parametrize(
    ("present", "saved", "message"),
    [
        ({"w": np.zeros(2)}, {"w": np.zeros(3)}, r"state.w has the shape \(2,\), and \(3,\)"),
        ([Variable([1])], [np.zeros(1), np.zeros(1)], "state has 1 variables, and 2"),
    ],
    ids=["shape", "number"],
)
def test_another_shape_or_number_of_variables_is_refused(present: Any, saved: Any, message: str) -> None:
    with pytest.raises(UnfitError, match=message):
        tree.put_back(present, saved, "state")
