"""The strategic merge, compared with kubectl's results for the same patches."""

from typing import Any

import pytest

from job_tracker.backends.kubernetes.strategic_merge import OverlayError, merged

POD: dict[str, Any] = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "containers": [
            {"name": "training", "image": "x", "env": [{"name": "A", "value": "1"}], "args": ["1", "2"]},
            {"name": "sidecar", "image": "y"},
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "tolerations": [{"key": "k"}],
        "nodeSelector": {"pool": "cpu"},
    },
}
TRAINING, SIDECAR = POD["spec"]["containers"]


@pytest.mark.parametrize(
    ("overlay", "expected"),
    [
        ({}, {}),
        ({"nodeSelector": {"arch": "arm"}}, {"nodeSelector": {"pool": "cpu", "arch": "arm"}}),
        ({"nodeSelector": None}, {"nodeSelector": None}),
        ({"nodeSelector": {"$patch": "replace", "arch": "arm"}}, {"nodeSelector": {"arch": "arm"}}),
        ({"nodeSelector": {"$patch": "delete"}}, {"nodeSelector": {}}),
        # a list that merges: elements are matched by key, and new ones are appended
        (
            {"containers": [{"name": "sidecar", "image": "z"}]},
            {"containers": [TRAINING, {"name": "sidecar", "image": "z"}]},
        ),
        (
            {"containers": [{"name": "new", "image": "n"}]},
            {"containers": [TRAINING, SIDECAR, {"name": "new", "image": "n"}]},
        ),
        ({"containers": [{"name": "sidecar", "$patch": "delete"}]}, {"containers": [TRAINING]}),
        (
            {"containers": [{"name": "sidecar", "$patch": "replace", "command": ["c"]}]},
            {"containers": [TRAINING, {"name": "sidecar", "command": ["c"]}]},
        ),
        (
            {"containers": [{"$patch": "replace"}, {"name": "only", "image": "o"}]},
            {"containers": [{"name": "only", "image": "o"}]},
        ),
        # ... at any depth
        (
            {"containers": [{"name": "training", "env": [{"name": "B", "value": "2"}]}]},
            {
                "containers": [
                    {**TRAINING, "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
                    SIDECAR,
                ]
            },
        ),
        # lists that are replaced
        ({"tolerations": [{"key": "l"}]}, {"tolerations": [{"key": "l"}]}),
        (
            {"containers": [{"name": "training", "args": ["3"]}]},
            {"containers": [{**TRAINING, "args": ["3"]}, SIDECAR]},
        ),
        # a volume whose kind changes
        (
            {"volumes": [{"name": "tmp", "$retainKeys": ["name", "ephemeral"], "ephemeral": {}}]},
            {"volumes": [{"name": "tmp", "ephemeral": {}}]},
        ),
    ],
)
def test_an_overlay_is_merged_into_a_pod(overlay: dict[str, Any], expected: dict[str, Any]) -> None:
    spec = {key: value for key, value in {**POD["spec"], **expected}.items() if value is not None}
    assert merged(POD, {"spec": overlay}) == {**POD, "spec": spec}


@pytest.mark.parametrize(
    ("overlay", "problem"),
    [
        (
            {"spec": {"$setElementOrder/containers": []}},
            "spec.$setElementOrder/containers: unknown directive",
        ),
        ({"spec": {"$patch": "remove"}}, "spec.$patch: is 'remove'; use merge"),
        (
            {"spec": {"containers": [{"image": "x"}]}},
            r"spec.containers\[0\]: name, which identifies the element, is missing",
        ),
        ({"spec": {"containers": ["x"]}}, r"spec.containers\[0\]: must be an object"),
        ({"$retainKeys": "x"}, "retainKeys: must be a list"),
    ],
)
def test_an_invalid_overlay_is_refused_with_its_place(overlay: dict[str, Any], problem: str) -> None:
    with pytest.raises(OverlayError, match=problem.replace("$", r"\$")):
        merged(POD, overlay)


def test_neither_side_is_changed() -> None:
    under = {"spec": {"containers": [{"name": "a", "env": [{"name": "A"}]}]}}
    overlay = {"spec": {"containers": [{"name": "a", "env": [{"name": "B"}]}]}}
    merged(under, overlay)
    assert under == {"spec": {"containers": [{"name": "a", "env": [{"name": "A"}]}]}}
    assert overlay == {"spec": {"containers": [{"name": "a", "env": [{"name": "B"}]}]}}
