"""The operator decides in which images uploaded programs run."""

import pytest
from pydantic import ValidationError

from job_tracker.admission.resolution import Resolver
from job_tracker.backends.docker.plan import plan as plan_containers
from job_tracker.backends.docker.plugin import DockerPlugin
from job_tracker.backends.docker.settings import DockerSettings
from job_tracker.backends.kubernetes.plan import plan as plan_pods
from job_tracker.backends.kubernetes.plugin import KubernetesPlugin
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.backends.shared.program_images import ProgramImages
from job_tracker.catalog import FixedCatalog
from job_tracker.domain.errors import InvalidField
from tests.support.jobs import job_of, spec
from tests.support.kubernetes_plans import TOKENS
from tests.support.programs import program_job

TEAM = "registry.example.com/team/*:*"
DIGEST = "@sha256:" + "ab" * 32
TREE = "0123456789abcdef" * 4


def image_of(image: str, *patterns: str) -> str:
    settings = ProgramImages(program_image_patterns=patterns)
    return settings.image_of("docker", image, "")


@pytest.mark.parametrize(
    ("pattern", "image"),
    [
        (TEAM, "registry.example.com/team/torch:2.5"),
        ("registry.example.com/team/*", "registry.example.com/team/torch"),
        ("registry.example.com:5000/*/torch:*", "registry.example.com:5000/a-b/torch:1"),
        ("registry.example.com/team/*@sha256:*", f"registry.example.com/team/torch{DIGEST}"),
        ("registry.example.com/team/*:*@*:*", f"registry.example.com/team/torch:1{DIGEST}"),
        ("python:3.1*", "python:3.11-slim"),
        ("*:*", "python:3.11"),
        ("exactly:1", "exactly:1"),
    ],
)
def test_an_image_that_a_pattern_allows_is_taken_as_it_is(pattern: str, image: str) -> None:
    assert image_of(image, "other:1", pattern) == image


@pytest.mark.parametrize(
    "image",
    [
        "registry.evil/registry.example.com/team/x:1",
        "registry.example.com.evil/team/x:1",
        "evil/registry.example.com/team/x:1",
        "registry.example.com:5000/team/x:1",
        "registry.example.com/team/x",
        "registry.example.com/team/a/b:1",
        "registry.example.com/team/../x:1",
        f"registry.example.com/team/x:1{DIGEST}",
        "registry.example.com/team/x:1\n",
        "registry.example.com/teamx:1",
    ],
)
def test_a_pattern_stands_for_the_whole_image_and_one_part_of_its_path(image: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        image_of(image, TEAM)


@pytest.mark.parametrize("pattern", ["*/x:1", "regi*.com/x:1", "a b", "", "/x", "$(X)", "x\n", "*" * 513])
def test_a_pattern_names_its_registry(pattern: str) -> None:
    with pytest.raises(ValidationError, match=r"is not a pattern|no \* before the first /"):
        ProgramImages(program_image_patterns=(pattern,))


@pytest.mark.parametrize(
    "image",
    [
        " python:3",
        "python:3 ",
        "Python:3",
        "python@sha256:12",
        "python:",
        "x" * 513,
        "-v",
        "a//b",
        "\x1b[31m",
        "$(X)",
    ],
)
def test_text_that_is_not_an_image_is_refused_before_the_patterns_are_asked(image: str) -> None:
    with pytest.raises(ValueError, match=r"is not an image; allowed: \[REGISTRY/\]PATH") as refused:
        image_of(image, "*", "*:*")
    assert str(refused.value).isprintable()


def test_by_default_no_image_is_allowed() -> None:
    with pytest.raises(
        ValueError,
        match=r"'python:3' is not allowed: requests .* may not name images.*docker\.program_image_pat",
    ):
        image_of("python:3")


def test_a_refusal_names_the_image_the_patterns_and_what_to_do() -> None:
    with pytest.raises(ValueError) as refused:
        image_of("ada/torch:1", TEAM, "team:*")
    for part in ("'ada/torch:1'", f"{TEAM}, team:*", "docker.program_image_patterns", "ask the operator"):
        assert part in str(refused.value)


NAMED = {"old": "registry.example.com/team:old", "new": "registry.example.com/team:new"}
PLUGINS = [
    ("docker", DockerPlugin(DockerSettings(program_environments=NAMED, program_image_patterns=(TEAM,)))),
    (
        "kubernetes",
        KubernetesPlugin(KubernetesSettings(program_environments=NAMED, program_image_patterns=(TEAM,))),
    ),
]


@pytest.mark.parametrize(("backend", "plugin"), PLUGINS)
@pytest.mark.parametrize(
    ("name", "image", "used"),
    [
        ("new", "", NAMED["new"]),
        ("", "registry.example.com/team/x:1", "registry.example.com/team/x:1"),
        ("", "", "training-program:0.1.0"),
    ],
)
def test_every_rank_runs_in_the_chosen_image_in_each_attempt(
    backend: str, plugin: DockerPlugin | KubernetesPlugin, name: str, image: str, used: str
) -> None:
    made = program_job(plugin, backend, TREE, "true", instances=2)
    group = Resolver(FixedCatalog({}), backend, plugin).in_environment(made.spec.group, "", name, image)
    assert group.trainers.image == used
    for attempt in (1, 2):
        job = job_of(
            spec(instances=2, group=group, program=made.spec.program, data_uri=""), job_id=7, attempt=attempt
        )
        # The stored image counts, and not the settings, which may have changed since.
        if backend == "docker":
            containers = plan_containers(job, DockerSettings(), most_log=1 << 20).containers
            images = {each.request["Image"] for each in containers}
        else:
            pods = plan_pods(job, KubernetesSettings(), TOKENS).pods
            images = {
                each["spec"][kind][0]["image"] for each in pods for kind in ("containers", "initContainers")
            }
        assert images == {used}


@pytest.mark.parametrize(("backend", "plugin"), PLUGINS)
def test_an_unknown_environment_lists_the_known_ones(
    backend: str, plugin: DockerPlugin | KubernetesPlugin
) -> None:
    resolver = Resolver(FixedCatalog({}), backend, plugin)
    group = program_job(plugin, backend, TREE, "true").spec.group
    with pytest.raises(InvalidField) as refused:
        resolver.in_environment(group, "", "newer", "")
    assert str(refused.value) == (
        f"program.python_environment: 'newer' doesn't exist; configured ({backend}.program_environments): "
        "new, old"
    )
