"""Settings of flavors, queues and priorities."""

from pathlib import Path

import pytest

from job_tracker.scheduling.model import Flavor, Limit
from training_service.settings.loading import SettingsError, load

EXAMPLE = """
[scheduling]
priorities = {low = -10, normal = 0, urgent = 1000}
reservations = 20
usage_half_life = "P1D"

[scheduling.flavors]
a100 = {instances = 8, cpu = "512", "nvidia.com/gpu" = 64}
spot = {instances = 100}

[scheduling.queues.teams]
projects = ["vision", "speech"]

[scheduling.queues.vision]
parent = "teams"
weight = 3
projects = ["vision"]
quotas.a100 = {nominal = {"nvidia.com/gpu" = 32}, borrow = {"nvidia.com/gpu" = 16}}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "service.toml"
    path.write_text(text)
    return path


def test_without_settings_the_capacity_is_one_flavor() -> None:
    scheduling = load().scheduling
    assert scheduling.pool().flavors == (Flavor(name="default", capacity={"instances": 8}),)
    assert list(scheduling.tree().queues) == ["default"]
    assert scheduling.tree().most_instances == 8


def test_flavors_queues_and_priorities_are_read(tmp_path: Path) -> None:
    scheduling = load(write(tmp_path, EXAMPLE)).scheduling
    assert scheduling.pool().flavors == (
        Flavor(name="a100", capacity={"instances": 8, "cpu": 512_000, "nvidia.com/gpu": 64}),
        Flavor(name="spot", capacity={"instances": 100, "nvidia.com/gpu": 0}),
    )
    vision = scheduling.tree().queues["vision"]
    assert vision.limits == {"a100": {"nvidia.com/gpu": Limit(nominal=32, borrow=16)}}
    assert scheduling.tree().most_instances == 100
    assert scheduling.pool().priorities["urgent"] == 1000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[scheduling]\ncapacity = 4\nflavors.a = {instances = 1}",
            "scheduling.capacity: 4 is not allowed with",
        ),
        ("[scheduling.flavors.a]\ncpu = 1", "scheduling.flavors.a: "),
        ("[scheduling.flavors.a]\ninstances = 0", "scheduling.flavors.a: "),
        ("[scheduling.flavors.a]\ninstances = 1\nwheels = 4", "scheduling.flavors.a.wheels: "),
        ("[scheduling.queues.a]\nparent = 'b'", "scheduling.queues.a.parent: 'b' doesn't exist"),
        ("[scheduling.queues.a]\nweight = -1", "scheduling.queues.a.weight: "),
        ("[scheduling.queues.a]\nwheels = 1", "scheduling.queues.a.wheels: unknown name; allowed: parent, "),
        ("[scheduling.queues.A]\nweight = 1", "scheduling.queues.A: "),
        (
            "[scheduling.queues.a.quotas.default]\nnominal = {instances = 9}",
            "scheduling.queues.a.quotas.default.nominal.instances: a and the queues below are guaranteed 9 "
            "in all; at most 8 is allowed (scheduling.flavors.default.instances)",
        ),
        ("[scheduling.priorities]\nhigh = 1.5", "scheduling.priorities.high: "),
        ("[scheduling.priorities]\nhigh = 10000000", "scheduling.priorities.high: "),
        ("[scheduling]\nreservations = -1", "scheduling.reservations: "),
        ("[scheduling]\novertake_limit = -1", "scheduling.overtake_limit: "),
        ("[scheduling]\nusage_half_life = 1", "scheduling.usage_half_life: "),
    ],
)
def test_a_bad_setting_is_refused_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(write(tmp_path, text))
    assert message in str(refused.value)


FOLLOWED = """
backend = "kubernetes"
[kubernetes.flavors.a100]
node_selector = {gpu = "a100"}
[kubernetes.flavors.t4]
node_selector = {gpu = "t4"}
[scheduling.flavors.t4]
instances = 4
[scheduling.queues.vision.quotas.a100]
nominal = {instances = 500, "nvidia.com/gpu" = 16}
"""


def test_the_capacity_of_a_flavor_follows_its_machines_unless_it_is_configured(tmp_path: Path) -> None:
    settings = load(write(tmp_path, FOLLOWED))
    assert settings.followed_flavors == ("a100",)
    assert settings.scheduling.pool(settings.followed_flavors, settings.plugin.flavors).flavors == (
        Flavor(name="t4", capacity={"instances": 4}, labels={"gpu": "t4"}),
        Flavor(name="a100", capacity={}, labels={"gpu": "a100"}, is_followed=True, is_known=False),
    )
    tree = settings.scheduling.tree(settings.followed_flavors)
    assert tree.queues["vision"].limits["a100"]["instances"] == Limit(nominal=500)
    assert tree.most_instances == 10_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("[scheduling]\ncapacity = 4", "scheduling.capacity: 4 is not allowed with scheduling.flavors"),
        ("[kubernetes.flavors.A]", "kubernetes.flavors.A: "),
        ("[kubernetes.flavors.a]\nnode_selector = {gpu = 'a b'}", "kubernetes.flavors.a.node_selector"),
        (
            "[scheduling.queues.speech]\nparent = 'vision'\nquotas.a100.nominal = {instances = 501}",
            "scheduling.queues.speech.quotas.a100.nominal.instances: speech and the queues below are "
            "guaranteed 501 in all; at most 500 is allowed (vision.quotas.a100.nominal.instances)",
        ),
    ],
)
def test_a_setting_that_does_not_fit_followed_flavors_is_refused(
    tmp_path: Path, change: str, message: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        load(write(tmp_path, f"{FOLLOWED}{change}"))
    assert message in str(refused.value)


def test_the_usual_capacity_is_not_allowed_with_followed_flavors(tmp_path: Path) -> None:
    text = "backend = 'kubernetes'\n[scheduling]\ncapacity = 4\n[kubernetes.flavors.a100]\n"
    with pytest.raises(SettingsError, match=r"scheduling.capacity: 4 is not allowed with the flavors a100"):
        load(write(tmp_path, text))
