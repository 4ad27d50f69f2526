"""Settings of scheduling.delegate: settings that have no effect beside it are refused."""

from pathlib import Path

import pytest

from training_service.job_opening import planner_options, tracker_options
from training_service.settings import Settings
from training_service.settings.loading import SettingsError, load

KUEUE = 'backend = "kubernetes"\n[catalog]\nreplace_shipped = true\n[scheduling]\ndelegate = "kueue"\n'


def read(folder: Path, text: str) -> Settings:
    path = folder / "service.toml"
    path.write_text(text)
    return load(path)


def test_the_service_launches_and_leaves_the_rest_to_kueue(tmp_path: Path) -> None:
    settings = read(tmp_path, KUEUE + 'delegate_waiting = 3\n[kubernetes.kueue]\nqueues.vision = "team-a"\n')
    assert planner_options(settings).delegated == 3
    assert not tracker_options(settings).restarts_ranks
    assert settings.scheduling.pool().is_delegated


def test_without_it_the_service_decides() -> None:
    assert planner_options(load()).delegated is None
    assert tracker_options(load()).restarts_ranks


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[scheduling]\ndelegate = "kueue"', "process.delegate: 'kueue' is not possible"),
        ('[scheduling]\ndelegate = "yunikorn"', "'kueue'"),
        ("[scheduling]\ndelegate_waiting = 3", "scheduling.delegate_waiting: 3 is not allowed without"),
        (KUEUE + "capacity = 4", "scheduling.capacity: not allowed with scheduling.delegate"),
        (KUEUE + "flavors.a = {instances = 1}", "scheduling.flavors: not allowed with scheduling.delegate"),
        (KUEUE + "reservations = 5", "scheduling.reservations: not allowed"),
        (KUEUE + "queues.a = {weight = 2}", "scheduling.queues.a.weight: not allowed"),
        (KUEUE + '[kubernetes.gang]\nscheduler = "volcano"', "kubernetes.gang.scheduler: volcano is not"),
        (KUEUE + '[kubernetes.flavors.a.node_selector]\nkind = "a"', "with the flavors a of the backend"),
        (KUEUE + '[kubernetes.kueue]\npriority_classes.best = "a"', "priority_classes: best doesn't exist"),
        (
            'backend = "kubernetes"\n[catalog]\nreplace_shipped = true\n[kubernetes.kueue]\nqueues.a = "b"',
            "kubernetes.kueue.queues: not allowed without scheduling.delegate",
        ),
        (KUEUE + '[kubernetes.kueue]\nqueues.a = "No"', "is not the name of an object"),
    ],
)
def test_settings_that_contradict_it_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read(tmp_path, text)
    assert message in str(refused.value)
