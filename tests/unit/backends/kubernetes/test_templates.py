"""The resources that templates of algorithms add to those of pods."""

from job_tracker.backends.kubernetes.plugin import KubernetesPlugin
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.backends.kubernetes.templates import requested_beside
from job_tracker.scheduling.gangs import parts_of
from job_tracker.scheduling.model import Part
from tests.support.catalog import resolved
from tests.support.jobs import job
from tests.support.kubernetes_plans import NAME, algorithm


def test_what_a_template_adds_counts_beside_the_resources() -> None:
    sidecar = {"name": "proxy", "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}}}
    template = {"spec": {"containers": [sidecar], "overhead": {"cpu": "50m"}}}
    resources = {"cpu": "2", "nvidia.com/gpu": "1"}
    assert requested_beside(template, resources) == {"cpu": "300m", "memory": str(64 << 20)}
    assert requested_beside({"metadata": {"labels": {"a": "b"}}}, resources) == {}
    assert requested_beside({}, resources) == {}


def test_the_scheduler_counts_what_a_template_adds() -> None:
    sidecar = {"name": "proxy", "resources": {"requests": {"cpu": "250m"}}}
    template = {"spec": {"containers": [sidecar]}}
    made = algorithm(resources={"cpu": "1"}, pod_template=template)
    plugin = KubernetesPlugin(KubernetesSettings())
    spec = resolved(job(algorithm=NAME), {NAME: made}, "kubernetes", plugin).spec
    assert spec.group.trainers.resources == {"cpu": "1"}
    assert parts_of(spec.group) == (Part(1, {"instances": 1, "cpu": 1250}),)
