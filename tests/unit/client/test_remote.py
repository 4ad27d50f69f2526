"""A function runs as a job with the files of its folder; others are refused with a reason."""

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from training_service.client import InvalidRequest, TrainingClient
from training_service.client.remote import RUNNER, Remote, remote
from training_service.client.run.working_tree import WorkingTree

EXAMPLE = Path(__file__).parents[3] / "docs" / "code.md"
Jobs = list[tuple[list[str], WorkingTree, dict[str, Any]]]
Write = Callable[..., ModuleType]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes modules to a folder, and imports the first of them."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def written(**modules: str) -> ModuleType:
        for name, text in modules.items():
            path = tmp_path.joinpath(*name.split("__")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        importlib.invalidate_caches()
        return importlib.import_module(next(iter(modules)).replace("__", "."))

    yield written
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """The jobs that were submitted, without a service."""
    found: Jobs = []

    def run(_: object, command: list[str], *, folder: WorkingTree, **options: Any) -> int:
        found.append((command, folder, options))
        return len(found)

    run.__signature__ = importlib.import_module("inspect").signature(TrainingClient.run)  # type: ignore[attr-defined]
    monkeypatch.setattr(TrainingClient, "run", run)
    return found


def output(jobs: Jobs, folder: Path, *python: str) -> str:
    """Run the last job's command with its files, by a Python without packages such as training_service."""
    command, files, _ = jobs[-1]
    for file in files.files:
        target = folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.place.read_bytes())
    argv = [sys.executable, *(python or ("-S",)), *command[1:]]
    ended = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
    return ended.stdout + ended.stderr


def test_the_example_of_the_documentation_runs(write: Write, jobs: Jobs, tmp_path: Path) -> None:
    [example] = re.findall(r"This is\s`train\.py`:\n\n```python\n(.*?)```", EXAMPLE.read_text(), re.DOTALL)
    train = write(train=example).train
    assert train.submit(lr=0.1, layers=[64, 64]) == 1
    [(command, files, options)] = jobs
    assert command[:3] == ["python", RUNNER, "train:train"]
    assert options == {"name": "train", "instances": 3}
    assert {file.path for file in files.files} == {RUNNER, "train.py"}
    assert output(jobs, tmp_path / "copy") == "training with 0.1 and [64, 64]\n"
    assert output(jobs, tmp_path / "copy", "-B") == "training with 0.1 and [64, 64]\n"


def test_the_decorator_needs_no_parentheses(write: Write, jobs: Jobs, tmp_path: Path) -> None:
    text = "from training_service.client.remote import remote\n@remote\ndef greet(name): print(name)\n"
    greet = write(greeting=text).greet
    assert greet.submit("Ada") == 1
    assert output(jobs, tmp_path / "copy") == "Ada\n"
    assert output(jobs, tmp_path / "copy", "-B") == "Ada\n"


def test_a_function_of_a_package_imports_what_is_in_the_folder(
    write: Write, jobs: Jobs, tmp_path: Path
) -> None:
    text = """
from training_service.client.remote import remote
from package import numbers

@remote()
def add(first, *more, **named):
    print(numbers.total([first, *more]), named)
"""
    add = write(package__deep__adding=text, package__numbers="total = sum").add
    add.submit(1, 2, 3, name="x")
    assert jobs[0][0][2] == "package.deep.adding:add"
    assert output(jobs, tmp_path / "copy") == "6 {'name': 'x'}\n"
    assert isinstance(add, Remote)
    assert getattr(add, "__name__", "") == "add"


def test_a_folder_above_goes_along(write: Write, jobs: Jobs, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "source"))
    text = """
from training_service.client.remote import remote

@remote(folder={!r})
def f():
    print(open("data").read())
"""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "inner.py").write_text(text.format(str(tmp_path)))
    (tmp_path / "data").write_text("of above")
    importlib.import_module("inner").f.submit()
    assert jobs[0][0][2] == "source.inner:f"
    assert output(jobs, tmp_path / "copy") == "of above\n"


def top(x: Any = None, *more: Any) -> Any:
    return x


@pytest.mark.parametrize(
    ("function", "given", "message"),
    [
        (lambda: None, (), "<lambda> cannot run as a job: use a function that is defined by `def`"),
        (Path.exists, (), "Path.exists cannot run as a job"),
        (print, (), "print cannot run as a job"),
        (top, (object(),), "argument x of top is not JSON: Object of type object"),
        (top, (float("nan"),), "argument x of top is not JSON: Out of range"),
        (top, ((1, 2),), "argument x of top would change as JSON"),
        (top, ({1: 2},), "argument x of top would change as JSON"),
        (top, (1, {1, 2}), "argument more of top is not JSON"),
    ],
)
def test_what_cannot_be_sent_is_refused(
    jobs: Jobs, function: Callable[..., Any], given: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        remote()(function).submit(*given)
    assert message in str(caught.value)
    assert not jobs


def test_functions_without_a_file_or_inside_of_others_are_refused(jobs: Jobs) -> None:
    def nested() -> None: ...

    with pytest.raises(InvalidRequest, match=r"nested cannot run as a job"):
        remote()(nested).submit()
    notebook: dict[str, Any] = {"__name__": "__main__of_a_notebook"}
    exec("def cell(): pass", notebook)
    with pytest.raises(InvalidRequest, match="cell is not in a file, as in a notebook"):
        remote()(notebook["cell"]).submit()
    with pytest.raises(InvalidRequest, match="arguments of top: got an unexpected keyword argument 'y'"):
        remote()(top).submit(**{"y": 1})
    with pytest.raises(InvalidRequest, match="instance is not an option of remote; allowed: folder, "):
        remote(instance=3)


def test_a_program_that_was_started_by_its_file_submits_itself(jobs: Jobs, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("def f(x): print('ran', x, __name__)")
    main = ModuleType("__main__of_a_script")
    main.__file__, main.__spec__ = str(script), None
    sys.modules[main.__name__] = main
    try:
        exec(script.read_text(), main.__dict__)
        remote()(main.f).submit([1])
    finally:
        del sys.modules[main.__name__]
    assert json.loads(jobs[0][0][3]) == {"args": [[1]], "kwargs": {}}
    assert output(jobs, tmp_path / "copy") == "ran [1] script\n"


@pytest.mark.parametrize("python", ["-S", "-B"], ids=["without training_service", "with it"])
def test_a_submission_in_the_job_is_refused(
    write: Write, jobs: Jobs, tmp_path: Path, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
from training_service.client.remote import remote
@remote()
def f(): f.submit()
"""
    write(endless=text).f.submit()
    assert "submit was called in the job" in output(jobs, tmp_path / "copy", python)
