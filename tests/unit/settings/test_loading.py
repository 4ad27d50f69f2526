"""Loading settings, with backends from other packages."""

import sys
from pathlib import Path
from typing import Any

import pytest

from job_tracker.backends import registry
from job_tracker.backends.registry import installed
from training_service.settings import loading, settings
from training_service.settings.loading import SettingsError, load

BACKEND = """
from pydantic import SecretStr
from job_tracker.backends.process.plugin import ProcessPlugin
from job_tracker.common.config import Config

class Settings(Config):
    pin: SecretStr | None = None
    size: int = 3

class Recipe(Config):
    command: tuple[str, ...] = ()
    nproc_per_node: int = 1

class Plugin(ProcessPlugin):
    settings_model = Settings
    recipe_model = Recipe

class Demanding(ProcessPlugin):
    class settings_model(Config):
        url: str

class Alone:
    settings_model = Settings
"""


class Packages:
    """Packages with backends, besides the installed ones."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        # The functions without their caches, which have the installed backends.
        plugins, model = installed.__wrapped__, settings.settings_model.__wrapped__
        monkeypatch.setattr(settings, "installed", plugins)
        monkeypatch.setattr(loading, "settings_model", model)
        monkeypatch.syspath_prepend(str(folder))
        (folder / "others_backend.py").write_text(BACKEND)
        (folder / "broken_backend.py").write_text("import nothing_of_this_name")

    def add(self, name: str, place: str, package: str = "others") -> None:
        metadata = self._folder / f"{package}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{name} = {place}\n")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    yield Packages(tmp_path, monkeypatch)
    sys.modules.pop("others_backend", None)


def test_a_backend_of_another_package_has_its_own_table(packages: Packages) -> None:
    packages.add("other", "others_backend:Plugin")
    loaded: Any = load(flags={"other": {"size": "7", "pin": "1234"}})
    assert loaded.other.size == 7
    assert "1234" not in loaded.model_dump_json()


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("broken_backend:Plugin", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("others_backend:Absent", "AttributeError: module 'others_backend' has no attribute 'Absent'"),
        ("others_backend:Demanding", "(url: a value is required)"),
        ("others_backend:Alone", "(TypeError: Alone does not inherit from BackendPlugin)"),
    ],
)
def test_a_broken_backend_is_named_with_its_package(packages: Packages, place: str, reason: str) -> None:
    packages.add("other", place)
    with pytest.raises(
        SettingsError, match=r"^backend other of package others cannot be used: fix it"
    ) as caught:
        load()
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "name", ["server", "plugin", "check", "recipes", "instances", "with-dash", "Upper", "_under", "a__b"]
)
def test_a_backend_cannot_have_a_name_that_hides_a_setting(packages: Packages, name: str) -> None:
    packages.add(name, "others_backend:Plugin")
    with pytest.raises(SettingsError, match=f"^backend name '{name}' is not allowed"):
        load()


def test_two_packages_cannot_have_the_same_backend(packages: Packages) -> None:
    packages.add("process", "others_backend:Plugin")
    with pytest.raises(SettingsError, match="uninstall one") as caught:
        load()
    assert "backend process of package others" in str(caught.value)


def test_an_installation_without_backends_must_be_repeated(
    packages: Packages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "entry_points", lambda group: ())
    with pytest.raises(SettingsError, match=r"^no backends are installed.*install training-service again"):
        load()


def test_an_algorithm_without_a_recipe_for_the_backend_is_refused(packages: Packages) -> None:
    packages.add("other", "others_backend:Plugin")
    with pytest.raises(SettingsError, match=r"algorithms\.a\.other is missing; backend other needs it"):
        load(flags={"backend": "other", "algorithms": {"a": {}}})


@pytest.mark.parametrize(
    ("flags", "key"),
    [
        ({"other": {"pin": 7}}, "other.pin"),
        ({"process": {"secret_environment": {"A": 7}}}, "process.secret_environment.A"),
        ({"store": "redis://:7@host"}, "store"),
    ],
)
def test_error_messages_do_not_show_secret_values(
    packages: Packages, flags: dict[str, Any], key: str
) -> None:
    packages.add("other", "others_backend:Plugin")
    with pytest.raises(SettingsError, match=f"^command line: {key}: it must be") as caught:
        load(flags=flags)
    assert "7" not in str(caught.value)
