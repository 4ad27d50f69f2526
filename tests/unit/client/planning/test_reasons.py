from dataclasses import replace

from language_model.layout import VOCABULARY

from training_service.client.planning import reasons
from training_service.client.planning.model import Model

OURS = Model(layers=4, width=64, heads=4, sequence=64, vocabulary=VOCABULARY, tied=False, positions=64)


def test_the_model_that_language_model_trains_needs_no_word() -> None:
    assert reasons.differences(OURS) == ""


def test_another_model_is_named_as_such_with_each_difference() -> None:
    llama = replace(OURS, vocabulary=128_256, gated=True, inner=896, key_value_heads=2)
    said = reasons.differences(llama)
    assert said.startswith(
        "language-model trains a different model, to which the parameters only give this layout"
    )
    for difference in ("a vocabulary of 128256", "gated", "a feed-forward part of 896", "2 heads of keys"):
        assert difference in said
