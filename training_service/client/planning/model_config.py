"""Reads a model's sizes from a `config.json` in the form of Hugging Face Transformers.

Families of models differ in the names of the fields. A family is accepted only if the formulas of `model`
describe its layers. Models with an encoder and a decoder, with experts, or with states instead of attention
are not accepted.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training_service.client.planning.model import Model

GPT2 = ("gpt2", "gpt_bigcode", "gptj", "codegen")
PLAIN = ("bert", "roberta", "gpt_neox", "opt", "bloom", "phi", "falcon")
"""Families with two matrices in the feed-forward part."""
GATED = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi3", "olmo", "olmo2", "cohere")
"""Families with three matrices in the feed-forward part: SwiGLU or GeGLU."""
FAMILIES = (*GPT2, *PLAIN, *GATED)

_NAMES: Mapping[str, Sequence[str]] = {
    "layers": ("num_hidden_layers", "n_layer"),
    "width": ("hidden_size", "n_embd", "n_embed"),
    "heads": ("num_attention_heads", "n_head"),
    "inner": ("intermediate_size", "n_inner", "ffn_dim"),
    "key_value_heads": ("num_key_value_heads",),
    "head_size": ("head_dim",),
    "vocabulary": ("vocab_size",),
}
_NEEDED = ("layers", "width", "heads", "vocabulary")
_POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "seq_length")
_LEARNED_POSITIONS = ("gpt2", "gpt_bigcode", "bert", "roberta", "opt")
_TIED = ("gpt2", "gpt_bigcode", "bert", "roberta", "opt", "bloom", "gemma", "gemma2", "falcon", "cohere")
"""Families whose head uses the matrix of the embedding, unless the file says otherwise."""
_BIDIRECTIONAL = ("bert", "roberta")
_LARGEST_FILE = 1_000_000
_SIZES_OF_NUMBERS = {"float32": 4, "float16": 2, "bfloat16": 2}
_TOLERANCE = 0.1


def read(path: Path, *, sequence: int | None = None) -> Model:
    """Return the model that a `config.json` describes.

    `sequence` is the number of tokens of an example; by default, it is the largest that the file allows.

    If there is an index of weights beside the file (`model.safetensors.index.json`), its number of parameters
    must be that of the model, within 10 %.

    Raises ValueError, which names the field, if a file is not valid.
    """
    document = _document(path)
    model = of(document, str(path), sequence=sequence)
    _check_size(path, document, model)
    return model


def of(document: Mapping[str, Any], where: str, *, sequence: int | None = None) -> Model:
    """Return the model of a parsed `config.json`. `where` names the file in errors.

    Raises ValueError if the family is not supported, if a field is missing or not valid, or if `sequence` is
    too long.
    """
    family = document.get("model_type")
    if family not in FAMILIES:
        problem = (
            "has no model_type" if family is None else f"has model_type {family!r}, which is not supported"
        )
        raise ValueError(
            f"{where} {problem}. Supported are {', '.join(FAMILIES)}; for another model, give its sizes "
            "as options (--layers, --width, …)"
        )
    sizes = {name: _size(document, fields, where, name in _NEEDED) for name, fields in _NAMES.items()}
    # Falcon's files need not have the inner width. With `multi_query`, in the old architecture, all queries
    # share one head of keys and values.
    if family == "falcon":
        sizes["inner"] = sizes["inner"] or 4 * sizes["width"]
        if document.get("multi_query") and not document.get("new_decoder_architecture"):
            sizes["key_value_heads"] = 1
    if family in GATED and not sizes["inner"]:
        raise ValueError(f"{where} lacks intermediate_size, which models of type {family} have")
    longest = _size(document, _POSITIONS, where, sequence is None)
    if sequence is not None and longest and family in _LEARNED_POSITIONS and sequence > longest:
        raise ValueError(f"--sequence {sequence} is longer than the {longest} positions that {where} has")
    tied = document.get("tie_word_embeddings", family in _TIED)
    if not isinstance(tied, bool):
        raise ValueError(f"tie_word_embeddings in {where} is {tied!r}; it must be true or false")
    try:
        return Model(
            **sizes,
            sequence=sequence or longest,
            gated=family in GATED,
            tied=tied,
            causal=family not in _BIDIRECTIONAL,
            positions=longest if family in _LEARNED_POSITIONS else 0,
        )
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _document(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise ValueError(f"'{path}' cannot be read: {error.strerror}") from error
    if len(text) > _LARGEST_FILE:
        raise ValueError(f"'{path}' has more than {_LARGEST_FILE} bytes: it is not a config.json of a model")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"'{path}' is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise ValueError(f"'{path}' must be a JSON object with the sizes of a model")
    return document


def _size(document: Mapping[str, Any], names: Sequence[str], where: str, needed: bool) -> int:
    """Return the value of the first field in `names` that is set; 0 if none is set.

    Raises ValueError if the field is not a positive whole number, or if none is set and `needed` is true.
    """
    for name in names:
        value = document.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} in {where} is {value!r}; it must be a whole number above 0")
        return value
    if needed:
        raise ValueError(f"{where} lacks {' (or '.join(names)}{')' * (len(names) - 1)}")
    return 0


def _check_size(path: Path, document: Mapping[str, Any], model: Model) -> None:
    """Raise ValueError if the number of parameters in an index of weights beside the file differs from that
    of the model by more than 10 %.

    The number is checked only if the config.json names the type of the weights, and `_SIZES_OF_NUMBERS` has
    this type.
    """
    index = path.with_name("model.safetensors.index.json")
    size_of_number = _SIZES_OF_NUMBERS.get(str(document.get("torch_dtype") or document.get("dtype")))
    if size_of_number is None or not index.is_file():
        return
    try:
        size = json.loads(index.read_text())["metadata"]["total_size"]
        parameters = float(size) / size_of_number
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"'{index}' is not a valid index of weights: {error!r}") from error
    if not math.isclose(parameters, model.parameters, rel_tol=_TOLERANCE):
        raise ValueError(
            f"{path} describes {model.parameters:.4g} parameters, but the weights in {index.name} have "
            f"{parameters:.4g}: correct the sizes, or remove the file that belongs to another model"
        )
