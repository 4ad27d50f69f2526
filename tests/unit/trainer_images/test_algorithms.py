"""Every shipped algorithm declares the parameters that its program reads."""

import ast
import re
import tomllib
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import intent_classification.train
import pytest
from language_model.layout import Layout
from trainer_kit import environment, meeting
from trainer_kit.averaging import Averaging
from trainer_kit.checkpoints.settings import Settings as CheckpointSettings
from trainer_kit.staging.settings import Settings as StagingSettings

from job_tracker.catalog import Algorithm, Parameter
from job_tracker.frameworks.reserved_names import is_reserved
from tests.support.catalog import ALGORITHM
from training_service.settings.shipped import default_algorithms

ROOT = Path(__file__).parents[3]
IMAGES = ROOT / "trainer_images"


def configured(file: Path) -> dict[str, Algorithm]:
    return {
        name: ALGORITHM.model_validate(values)
        for name, values in tomllib.loads(file.read_text())["algorithms"].items()
    }


SHIPPED = {
    **{("built in", name): algorithm for name, algorithm in default_algorithms(ALGORITHM).items()},
    **{
        (file.relative_to(ROOT).as_posix(), name): algorithm
        for file in (IMAGES / "algorithms.toml", ROOT / "deploy/overlays/production/config.toml")
        for name, algorithm in configured(file).items()
    },
}
IDS = [f"{name} of {place}" for place, name in SHIPPED]

# A launcher runs beside the program, with the same environment.
LAUNCHERS = {"horovod": {"trainer_kit.horovod_instance"}, "mpi": {"trainer_kit.mpi.__main__"}}
# Only process.main creates a group, and a program that calls it imports the group itself. Only programs with
# a group use `checkpoints.kept`.
NOT_FOLLOWED = {
    ("trainer_kit.process", "trainer_kit.group"),
    ("trainer_kit.checkpoints", "trainer_kit.checkpoints.pytorch.keeping"),
}
AVERAGING = {"BUCKET_MB", "GRADIENT_COMPRESSION", "POWERSGD_RANK", "POWERSGD_START"}
NOT_USED = {"federated": AVERAGING, "hashed": AVERAGING}
"""For each algorithm that does not average gradients: variables that the kit reads only to average them."""
# These have no default, or one that depends on the group.
WITHOUT_DEFAULT = {"BUCKET_MB", "REFERENCE_BATCH_SIZE", "GROW_AT", "LARGEST_BATCH_SIZE", "NODE_SIZE"}
# The caller passes the names of these variables.
READERS = "trainer_kit.environment"
# Settings of the configuration: a rank's share of the cores, and the disk for staged data.
OF_THE_OPERATOR = {"OMP_NUM_THREADS", "STAGING_FOLDER", "STAGING_GB"}


def file_of(module: str) -> Path | None:
    place = IMAGES.joinpath(*module.split("."))
    return next((each for each in (place / "__init__.py", place.with_suffix(".py")) if each.is_file()), None)


@cache
def tree_of(module: str) -> ast.Module:
    file = file_of(module)
    assert file is not None, module
    return ast.parse(file.read_text())


def executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes except those for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            yield from executed(node)


def imported(module: str) -> Iterator[str]:
    for node in executed(tree_of(module)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def modules_of(entry: str) -> set[str]:
    """Return the module and all modules of the images that it imports, directly or indirectly."""
    found: set[str] = set()
    waiting = [entry]
    while waiting:
        module = waiting.pop()
        if module in found or file_of(module) is None:
            continue
        found.add(module)
        parents = module.split(".")
        waiting += [".".join(parents[:depth]) for depth in range(1, len(parents))]
        waiting += [name for name in imported(module) if (module, name) not in NOT_FOLLOWED]
    return found


def names_in(module: str) -> Iterator[str]:
    """Yield the variables that a module uses. A name in capitals that a function gets first counts too."""
    for node in executed(tree_of(module)):
        match node:
            case ast.Call(func=function, args=[first, *_]) if isinstance(function, ast.Name) or is_reader(
                function
            ):
                must_be_known = is_reader(function)
            case ast.Subscript(value=value, slice=first) if ast.unparse(value) == "os.environ":
                must_be_known = True
            case ast.Compare(left=first, ops=[ast.In() | ast.NotIn()], comparators=[among]) if (
                ast.unparse(among) == "os.environ"
            ):
                must_be_known = True
            case _:
                continue
        if isinstance(first, ast.JoinedStr):  # its first part is the prefix
            first = first.values[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            if re.fullmatch(r"[A-Z][A-Z0-9_]+", first.value):
                yield first.value
        else:
            assert not must_be_known, f"{module}, line {node.lineno}: which variable is read?"


def is_reader(function: ast.expr) -> bool:
    text = ast.unparse(function)
    return text in ("os.environ.get", "os.environ.setdefault", "os.environ.pop", "os.getenv") or (
        text.startswith("environment.") and hasattr(environment, text.removeprefix("environment."))
    )


@pytest.mark.parametrize("shipped", SHIPPED, ids=IDS)
def test_a_program_reads_the_parameters_that_its_algorithm_declares(shipped: tuple[str, str]) -> None:
    algorithm = SHIPPED[shipped]
    recipes = algorithm.recipes.values()
    commands = {*(each.command for each in recipes), algorithm.check} - {()}
    entries = {command[-1] for command in commands if command[-2] == "-m"}
    assert len(entries) == len(commands), commands
    entries |= LAUNCHERS.get(algorithm.framework, set())
    modules = set[str]().union(*map(modules_of, entries)) - {READERS}
    read = {name for module in modules for name in names_in(module)}
    read -= OF_THE_OPERATOR | NOT_USED.get(shipped[1], set())
    assert {name for name in read if not is_reserved(name)} == set(algorithm.parameters)


def test_all_declarations_of_a_program_have_the_same_parameters() -> None:
    for (place, name), algorithm in SHIPPED.items():
        built_in = default_algorithms(ALGORITHM).get(name)
        if built_in is not None:
            assert algorithm.parameters == built_in.parameters, place


class Recorder:
    """Records the parameters that a program reads with trainer_kit, as declarations."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: dict[str, Parameter] = {}
        self.defaults: dict[str, Any] = {}
        for kind in ("text", "integer", "integers", "positive_number", "fraction", "choice", "flag"):
            monkeypatch.setattr(environment, kind, self._recording(kind, getattr(environment, kind)))

    def _recording(self, kind: str, read: Callable[..., Any]) -> Callable[..., Any]:
        def reader(name: str, *arguments: Any, **options: Any) -> Any:
            value = read(name, *arguments, **options)
            if not is_reserved(name):
                choices: type[StrEnum] | tuple[str, ...] = arguments[0] if kind == "choice" else ()
                self.asked[name] = self._declaration(kind, tuple(map(str, choices)), options)
                self.defaults[name] = value
            return value

        return reader

    def _declaration(self, kind: str, choices: tuple[str, ...], options: dict[str, Any]) -> Parameter:
        match kind:
            case "integer":
                return Parameter(type="int", minimum=options["at_least"], maximum=options["at_most"])
            case "positive_number":
                return Parameter(type="float", exclusive_minimum=0)
            case "fraction":  # a declaration has no exclusive maximum; the algorithm's check refuses 1
                return Parameter(type="float", minimum=0, maximum=1)
            case "flag":
                return Parameter(type="bool")
            case _:
                return Parameter(choices=choices)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("intent-classification", intent_classification.train.Parameters.from_environment),
        ("language-model", Layout.from_environment),
    ],
)
def test_the_built_in_declarations_have_the_bounds_and_defaults_of_the_programs(
    name: str, read: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = default_algorithms(ALGORITHM)[name].parameters
    for each in declared:
        monkeypatch.delenv(each, raising=False)
    recorder = Recorder(monkeypatch)
    Averaging.from_environment()
    read()
    CheckpointSettings.from_environment()
    StagingSettings.from_environment()
    for each in OF_THE_OPERATOR:
        recorder.asked.pop(each, None)
    meeting.patience()
    bare = {
        key: each.model_copy(update={"default": None, "description": ""}) for key, each in declared.items()
    }
    assert bare == recorder.asked
    for key, parameter in declared.items():
        said = parameter.default or "".join(re.findall(r"\(([^)]*)\)$", parameter.description))
        assert said == "" or is_same(said, recorder.defaults[key]), key
        assert said or key in WITHOUT_DEFAULT, key


def is_same(said: str, default: Any) -> bool:
    if isinstance(default, bool):
        return said == str(default).lower()
    return float(said) == default if isinstance(default, int | float) else said == default


def test_programs_leave_the_printing_of_reports_to_the_kit() -> None:
    # A call such as print(MARKER, text) makes several writes, between which the kit's thread that saves
    # checkpoints may print. Both lines are then lost.
    programs = [file for file in IMAGES.rglob("*.py") if "trainer_kit" not in file.parts]
    assert len(programs) > 50
    assert [file for file in programs if re.search("::(progress|artifact)::", file.read_text())] == []
