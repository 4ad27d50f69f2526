"""Configurations of published models have their published sizes; others are refused with the field's name."""

import json
from pathlib import Path
from typing import Any

import pytest

from training_service.client.planning import model_config

GPT2 = {
    "model_type": "gpt2",
    "n_layer": 12,
    "n_embd": 768,
    "n_head": 12,
    "vocab_size": 50257,
    "n_positions": 1024,
}
BERT = {
    "model_type": "bert",
    "num_hidden_layers": 24,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
}
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def written(folder: Path, document: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("document", "millions"), [(GPT2, 124.4), (BERT, 335), (LLAMA, 8030)], ids=["gpt2", "bert", "llama"]
)
def test_published_models_have_their_parameters(tmp_path: Path, document: Any, millions: float) -> None:
    assert model_config.read(written(tmp_path, document)).parameters == pytest.approx(
        millions * 1e6, rel=0.01
    )


def test_families_differ_in_their_layers(tmp_path: Path) -> None:
    bert, llama = (model_config.of(each, "c") for each in (BERT, LLAMA))
    assert (bert.gated, bert.causal, bert.tied, bert.positions) == (False, False, True, 512)
    assert (llama.gated, llama.causal, llama.tied, llama.positions) == (True, True, False, 0)
    assert llama.key_value_width == 1024


def test_a_sequence_may_be_shorter_than_the_longest() -> None:
    assert model_config.of(GPT2, "c").sequence == 1024
    assert model_config.of(GPT2, "c", sequence=128).sequence == 128
    with pytest.raises(ValueError, match="--sequence 4096 is longer than the 1024 positions"):
        model_config.of(GPT2, "c", sequence=4096)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"model_type": "t5"}, "model_type 't5', which is not supported. Supported are gpt2"),
        ({"model_type": None}, "has no model_type"),
        ({"model_type": ["llama"]}, "not supported"),
        ({"num_hidden_layers": None}, "lacks num_hidden_layers \\(or n_layer"),
        ({"num_hidden_layers": 0}, "num_hidden_layers in .* is 0; it must be a whole number above 0"),
        ({"num_hidden_layers": True}, "num_hidden_layers in .* is True"),
        ({"hidden_size": "4096"}, "hidden_size in .* is '4096'"),
        ({"hidden_size": 4097}, "width 4097 is not a multiple of heads 32"),
        ({"vocab_size": 10**30}, "vocabulary is 1e\\+30; it must be from 1"),
        ({"num_key_value_heads": 7}, "not a multiple of key_value_heads 7"),
        ({"intermediate_size": None}, "lacks intermediate_size"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
    ],
)
def test_a_wrong_configuration_is_refused_by_field(
    tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        model_config.read(written(tmp_path, LLAMA | change))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not valid JSON"),
        ("[1]", "must be a JSON object"),
        ("[" * 100_000, "is not valid JSON"),
        (" " * 1_000_001, "more than 1000000 bytes"),
        ("\x00\xff", "is not valid JSON"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=complaint):
        model_config.read(path)
    with pytest.raises(ValueError, match="cannot be read"):
        model_config.read(tmp_path / "missing.json")


def test_a_configuration_that_its_weights_contradict_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, LLAMA)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 8_030_261_248 * 2}}))
    assert model_config.read(path).layers == 32
    index.write_text(json.dumps({"metadata": {"total_size": 70_000_000_000 * 2}}))
    with pytest.raises(ValueError, match=r"8.03e\+09 parameters, but the weights in .* have 7e\+10"):
        model_config.read(path)
    index.write_text("{}")
    with pytest.raises(ValueError, match="is not a valid index"):
        model_config.read(path)
