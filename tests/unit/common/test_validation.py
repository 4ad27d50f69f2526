"""Validation errors as text: the path, the value, the allowed values, and never a secret."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    SecretStr,
    Tag,
    ValidationError,
    field_validator,
)

from job_tracker.common.validation import explain, problems


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = Field(default=1, ge=10)
    token: SecretStr | None = None

    @field_validator("size")
    @classmethod
    def _even(cls, size: int) -> int:
        if size % 2:
            raise ValueError(f"{size} is odd")
        return size


class Plain(BaseModel):
    level: Literal["low", "high"] = "low"


Either = Annotated[
    Annotated[Plain, Tag("plain")] | Annotated[Inner, Tag("inner")],
    Discriminator(lambda value: "plain" if "level" in value else "inner"),
]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: Inner | None = None
    plain: Plain = Plain()
    table: dict[Annotated[str, Field(pattern="^[a-z]*$")], Inner] = {}
    either: tuple[Either, ...] = ()
    secret_names: tuple[str, ...] = Field(default=(), max_length=1)
    texts: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"inner": {"size": 0}}, "inner.size: 0 is not allowed: it must be greater than or equal to 10"),
        ({"inner": {"size": 11}}, "inner.size: 11 is odd"),
        ({"inner": {"size": 10, "sise": 1}}, "inner.sise: unknown name; allowed: size, token"),
        ({"sizes": 1}, "sizes: unknown name; allowed: inner, plain, table"),
        ({"plain": 3}, "plain: 3 is not allowed: it must be a table"),
        (
            {"plain": {"level": "x" * 99}},
            f"plain.level: '{'x' * 57}...' is not allowed: it must be 'low' or 'high'",
        ),
        ({"plain": {"level": "a\nb"}}, r"plain.level: 'a\nb' is not allowed"),
        ({"table": {"A": {}}}, "table.A: 'A' is not allowed: it must match pattern"),
        ({"table": {"a": {"size": "b"}}}, "table.a.size: 'b' is not allowed: it must be a valid integer"),
        ({"either": [{"level": 1}]}, "either.0.level: 1 is not allowed: it must be 'low' or 'high'"),
        ({"either": [{"seize": 1}]}, "either.0.seize: unknown name; allowed: size, token"),
        ({"inner": "hunter2"}, "inner: it must be a table"),
        ({"inner": {"token": 12345}}, "inner.token: it must be a valid string"),
        ({"secret_names": [12345]}, "secret_names.0: it must be a valid string"),
        ({"secret_names": ["a", "b"]}, "secret_names: it must have at most 1 item, not 2"),
        ({"table": {"a": "hunter2"}}, "table.a: it must be a table"),
        ({"texts": [1, 2]}, "texts.0: 1 is not allowed: it must be a valid string; texts.1: 2 is"),
    ],
)
def test_an_explanation_has_the_path_the_value_and_the_allowed_values(
    document: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        Model.model_validate(document)
    answer = explain(caught.value, Model)
    assert answer.startswith(text)
    assert not any(secret in answer for secret in ("hunter2", "12345"))
    assert answer.isprintable()


def test_a_problem_has_the_path_as_parts() -> None:
    with pytest.raises(ValidationError) as caught:
        Model.model_validate({"table": {"a": {"size": 1}}})
    assert [problem.path for problem in problems(caught.value, Model)] == [("table", "a", "size")]


def test_values_of_an_unknown_model_are_not_shown() -> None:
    with pytest.raises(ValidationError) as caught:
        Model.model_validate({"texts": [1]})
    assert explain(caught.value) == "texts.0: it must be a valid string"


def test_an_error_that_is_not_pydantics_is_its_own_explanation() -> None:
    assert explain(ValueError("too late")) == "too late"
