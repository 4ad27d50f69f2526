import pytest
from trainer_kit import environment
from trainer_kit.errors import ParameterError
from trainer_kit.job import Job


def test_values_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPOCHS", "15")
    monkeypatch.setenv("LR", "4")
    assert environment.integer("EPOCHS", at_least=1, at_most=20) == 15
    assert environment.positive_number("LR") == 4.0


def test_unset_variables_have_defaults() -> None:
    assert environment.text("NOT_THERE", default="this") == "this"
    assert environment.integer("NOT_THERE", default=3, at_least=1, at_most=5) == 3
    assert environment.positive_number("NOT_THERE", default=0.5) == 0.5


def test_a_missing_variable_without_a_default_is_named() -> None:
    with pytest.raises(ParameterError, match=r"^NOT_THERE is not set$"):
        environment.text("NOT_THERE")


@pytest.mark.parametrize("value", ["", "x", "1.5", "0", "-1", "21", "9" * 10_000, "nan"])
def test_an_invalid_integer_is_named_with_its_bounds(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("EPOCHS", value)
    with pytest.raises(
        ParameterError, match=r"^EPOCHS must be a whole number from 1 to 20, but is '.{0,50}'$"
    ):
        environment.integer("EPOCHS", at_least=1, at_most=20)


@pytest.mark.parametrize("value", ["", "x", "0", "-4", "inf", "nan", "1e999"])
def test_an_invalid_number_is_named(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("LR", value)
    with pytest.raises(ParameterError, match=r"^LR must be a finite number above 0, but is "):
        environment.positive_number("LR")


@pytest.mark.parametrize("value", ["0", "0.1", "0.999"])
def test_a_fraction_is_read(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("DROPOUT", value)
    assert environment.fraction("DROPOUT") == float(value)
    assert environment.fraction("NOT_THERE", default=0.5) == 0.5


@pytest.mark.parametrize("value", ["", "x", "-0.1", "1", "nan", "inf"])
def test_an_invalid_fraction_is_named(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("DROPOUT", value)
    with pytest.raises(ParameterError, match=r"^DROPOUT must be a number from 0 to below 1, but is "):
        environment.fraction("DROPOUT")


@pytest.mark.parametrize("missing", ["TRAINING_DATA_URI", "MODEL_URI"])
def test_a_job_needs_both_uris(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setenv("TRAINING_DATA_URI", "data")
    monkeypatch.setenv("MODEL_URI", "model")
    assert Job.from_environment().data_uri == "data"
    monkeypatch.delenv(missing)
    with pytest.raises(ParameterError, match=f"^{missing} is not set$"):
        Job.from_environment()


def test_undeclared_parameters_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINING_PARAMETERS", raising=False)
    assert environment.free_parameters() == {}
    monkeypatch.setenv("TRAINING_PARAMETERS", '{"DEPTH": "3", "note": "gr\u00fcn \\"x\\""}')
    assert environment.free_parameters() == {"DEPTH": "3", "note": 'gr\u00fcn "x"'}


@pytest.mark.parametrize("value", ["x", "[]", "3", "null", '{"DEPTH": 3}', '{"DEPTH"', "[" * 100])
def test_a_value_other_than_an_object_of_texts_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("TRAINING_PARAMETERS", value)
    with pytest.raises(
        ParameterError, match=r"^TRAINING_PARAMETERS must be a JSON object whose values are strings"
    ):
        environment.free_parameters()
