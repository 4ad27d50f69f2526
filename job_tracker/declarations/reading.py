"""Reads definitions that callers have sent. Callers are less trusted than files of the service."""

import json
import string
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from pydantic import ValidationError

from job_tracker.admission.admission import MAX_PARAMETERS
from job_tracker.admission.programs import check_environment
from job_tracker.catalog import Algorithm, Dataset
from job_tracker.common.printable import quoted
from job_tracker.common.validation import explain, problems
from job_tracker.domain.declaration import LARGEST_DEFINITION
from job_tracker.domain.errors import Forbidden, InvalidField
from job_tracker.scheduling.recipes import QueueRecipe

FIELD: Final = "definition"
_RECIPE_FIELDS: Final = ("command", "image", "nproc_per_node")
"""The fields that a definition may set in an algorithm's table of a backend.

They decide which code runs, and in how many processes, but not the rights or the machines of this code.
"""
_IN_TEXT: Final = "\n\t"
_PLACES: Final = frozenset({"dataset_id", "version"})
_MOST_FILES: Final = 100
_LONGEST_URI: Final = 1024
_DEEPEST: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Makes algorithms, datasets and queues from definitions: JSON with fields as in the configuration.

    If a value is not allowed, the methods raise InvalidField with the path of the field, for example
    `definition.uri`. They raise Forbidden if the service accepts no such definitions.
    """

    algorithm_model: type[Algorithm]
    """The pydantic model of algorithms, with the tables of all backends."""
    check_algorithm: Callable[[str, Algorithm], None]
    """Raises ValueError if this service cannot run the algorithm.

    The first argument is the prefix of field names in the message.
    """
    refusal: str = ""
    """The reason why the service accepts no algorithms through the API; empty if it accepts them."""
    dataset_uris: tuple[str, ...] = ()
    """The URIs of the folders in which datasets may be."""

    def algorithm(self, definition: str) -> Algorithm:
        """Read an algorithm."""
        if self.refusal:
            raise Forbidden(self.refusal)
        values = parsed(definition)
        if values.get("check"):
            raise InvalidField(
                f"{FIELD}.check",
                "not allowed: programs that the service itself runs come from its files only",
            )
        backends = self.algorithm_model.model_fields.keys() - Algorithm.model_fields.keys()
        for backend in sorted(backends & values.keys()):
            _check_table(f"{FIELD}.{backend}", values[backend], _RECIPE_FIELDS)
        for role, options in _items(values.get("roles")):
            for backend in sorted(backends & dict(_items(options)).keys()):
                _check_table(f"{FIELD}.roles.{quoted(role)[1:-1]}.{backend}", options[backend], ())
        algorithm: Algorithm = _validated(self.algorithm_model, values)
        if len(algorithm.parameters) > MAX_PARAMETERS:
            raise InvalidField(
                f"{FIELD}.parameters",
                f"has {len(algorithm.parameters)} entries; at most {MAX_PARAMETERS} are allowed",
            )
        check_environment(f"{FIELD}.environment", algorithm.environment)
        try:
            self.check_algorithm("", algorithm)
        except ValueError as error:
            raise InvalidField(FIELD, explain(error)) from error
        return algorithm

    def dataset(self, definition: str) -> Dataset:
        """Read a dataset."""
        dataset: Dataset = _validated(Dataset, parsed(definition))
        uri = dataset.uri
        if len(uri) > _LONGEST_URI:
            raise InvalidField(
                f"{FIELD}.uri", f"has {len(uri)} characters; at most {_LONGEST_URI} are allowed"
            )
        if not uri.isprintable():
            raise InvalidField(
                f"{FIELD}.uri", f"{quoted(uri)} is not allowed: it contains control characters or line breaks"
            )
        for _, name, form, conversion in string.Formatter().parse(uri):
            if name is not None and (name not in _PLACES or form or conversion):
                raise InvalidField(
                    f"{FIELD}.uri",
                    f"{quoted(uri)} is not allowed: only {{dataset_id}} and {{version}} can be filled in",
                )
        folders = [f"{folder.rstrip('/')}/" for folder in self.dataset_uris]
        if not any(uri.startswith(folder) for folder in folders) or "::" in uri or _leads_out(uri):
            raise InvalidField(
                f"{FIELD}.uri",
                f"{quoted(uri)} is not allowed; allowed: folders in {', '.join(folders)} "
                "(catalog.dataset_uris)",
            )
        if len(dataset.files) > _MOST_FILES:
            raise InvalidField(
                f"{FIELD}.files", f"has {len(dataset.files)} entries; at most {_MOST_FILES} are allowed"
            )
        for name in dataset.files:
            if any(part in ("", ".", "..") for part in name.split("/")) or not name.isprintable():
                raise InvalidField(
                    f"{FIELD}.files",
                    f"{quoted(name)} is not allowed; allowed: printable relative paths without ..",
                )
        return dataset

    def queue(self, definition: str) -> QueueRecipe:
        """Read a queue. This does not check whether the queue fits into the tree of all queues."""
        recipe: QueueRecipe = _validated(QueueRecipe, parsed(definition))
        return recipe


def _leads_out(uri: str) -> bool:
    """Return whether a part of the URI's path is `..`.

    The `..` may be percent-encoded any number of times, since HTTP storages decode the path.
    """
    while (decoded := unquote(uri)) != uri:
        uri = decoded
    return ".." in uri.split("/")


def images_of(algorithm: Algorithm) -> frozenset[str]:
    """Return the images that the recipes of an algorithm use."""
    images = (getattr(recipe, "image", "") for recipe in algorithm.recipes.values())
    return frozenset(image for image in images if image)


def check_images(algorithm: Algorithm, known: Collection[str]) -> None:
    """Raise InvalidField unless `known` has all images of the algorithm.

    Operators decide which images a project may run.
    """
    for backend, recipe in algorithm.recipes.items():
        image = getattr(recipe, "image", "")
        if image and image not in known:
            raise InvalidField(
                f"{FIELD}.{backend}.image",
                f"{quoted(image)} is not allowed in a project, since no algorithm for all projects uses it; "
                "ask an operator to declare such an algorithm, or use the image of an existing one",
            )


def parsed(definition: str) -> dict[str, Any]:
    """Parse a definition, and return the JSON object in it.

    Raises InvalidField if the text is too large, or is not a JSON object with unique names and finite
    numbers. Also raises InvalidField if the object is nested too deeply, or if a string in the object
    has unprintable characters other than line breaks and tabs.
    """
    size = len(definition.encode(errors="surrogatepass"))
    if size > LARGEST_DEFINITION:
        raise InvalidField(FIELD, f"has {size} bytes; at most {LARGEST_DEFINITION} are allowed")
    try:
        values = json.loads(definition, object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidField(FIELD, f"it is not a JSON object: {reason}") from error
    if not isinstance(values, dict):
        raise InvalidField(FIELD, "it is not a JSON object")
    for text in _texts(values):
        if not all(c.isprintable() or c in _IN_TEXT for c in text):
            raise InvalidField(
                FIELD,
                f"{quoted(text)} is not allowed: use printable characters, line breaks and tabs only",
            )
    return values


def canonical(definition: str) -> str:
    """Return the definition in the form in which it is stored. The order of names is kept."""
    return json.dumps(parsed(definition), ensure_ascii=False, separators=(",", ":"))


def _validated(model: type[Any], values: Mapping[str, Any]) -> Any:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problem = next(problems(error, model))
        raise InvalidField(".".join((FIELD, *problem.path)), problem.reason) from error


def _check_table(place: str, table: Any, allowed: Collection[str]) -> None:
    for name in dict(_items(table)).keys() - set(allowed):
        raise InvalidField(
            f"{place}.{quoted(name)[1:-1]}",
            f"not allowed through the API: only files of the service may set it; allowed: "
            f"{', '.join(allowed) or 'none'}",
        )


def _items(table: Any) -> Iterator[tuple[str, Any]]:
    """Yield the items of a table. For other values, yield nothing: validation refuses them later."""
    if isinstance(table, Mapping):
        yield from table.items()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name occurs twice")
    return values


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not allowed in JSON; use a finite number")


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the strings in a value, including names. Raises InvalidField if it is nested too deeply."""
    if depth > _DEEPEST:
        raise InvalidField(FIELD, "it is nested too deeply")
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield key
            yield from _texts(each, depth + 1)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, depth + 1)
