"""trainctl plan transformer: the decision, its reasons, and errors that name the option."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.trainctl import Trainctl

DEVICES = ("--device-memory", "80G", "--device-speed", "312T")
SMALL = ("--layers", "12", "--heads", "12", "--width", "768", "--sequence", "1024", "--batch", "16")
LARGE = ("--layers", "24", "--heads", "16", "--width", "2048", "--sequence", "1024", "--batch", "32")


def planned(trainctl: Trainctl, *options: str) -> dict[str, Any]:
    result = trainctl("--json", "plan", "transformer", *options)
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_a_training_that_fits_one_device_stays_there_on_a_slow_network(trainctl: Trainctl) -> None:
    options = (*SMALL, *DEVICES, "-n", "8", "--per-machine", "1", "--outer-bandwidth", "125M")
    found = planned(trainctl, *options)
    assert found["verdict"] == "The training fits one device: use one device."
    assert "devices are 0." in found["reasons"][-1]
    assert trainctl("plan", "transformer", *options).stdout.startswith("The training fits one device")


def test_a_pipeline_is_explained_with_its_rule_and_the_runner_up(trainctl: Trainctl) -> None:
    options = (
        "-n",
        "2",
        "--device-memory",
        "20G",
        "--device-speed",
        "15T",
        "--precision",
        "fp32",
        "--per-machine",
        "1",
    )
    found = planned(trainctl, *LARGE, *options, "--outer-bandwidth", "1250M")
    assert found["verdict"] == "Use 2 devices: pipeline of 2."
    one, two = found["reasons"][:2]
    assert one.startswith("It does not fit one device: parameters, gradients and optimizer take 21")
    assert two.startswith("A pipeline of 2 saves time: T_mini = ")
    best, second = found["choices"][:2]
    assert best["parameters"] | {"PIPELINE": "2", "STRATEGY": "ddp", "LAYERS": "24"} == best["parameters"]
    assert best["rejected"] is None
    assert "slower" in second["rejected"]
    assert second["step_seconds"] > best["step_seconds"]
    assert sum(best["seconds"].values()) == pytest.approx(best["step_seconds"])


def test_with_quiet_only_the_options_of_submit_are_printed(trainctl: Trainctl) -> None:
    result = trainctl("-q", "plan", "transformer", *SMALL, *DEVICES, "-n", "2")
    assert result.stdout.splitlines() == [
        "--instances 2 -p LAYERS=12 -p HEADS=12 -p WIDTH=768 -p CONTEXT=1024 -p BATCH_SIZE=16 "
        "-p PRECISION=bf16 -p STRATEGY=ddp"
    ]


SCALED = ("--layers", "28", "--heads", "16", "--width", "2048", "--sequence", "512", "--batch", "512")
CLUSTER = (*DEVICES, "-n", "16", "--outer-bandwidth", "25G", "--precision", "fp16", "--strategy", "zero1")
REFUSAL = "language-model refuses PRECISION=fp16 with STRATEGY=zero1"


def test_refused_options_have_a_note(trainctl: Trainctl) -> None:
    printed = trainctl("plan", "transformer", *SCALED, *CLUSTER).stdout.splitlines()
    assert "-p PRECISION=fp16 -p STRATEGY=zero1" in printed[-1]
    assert REFUSAL in printed[-2]
    found = planned(trainctl, *SCALED, *CLUSTER)
    assert REFUSAL in found["note"]
    assert found["choices"][0]["refusals"][0].startswith(REFUSAL)


def test_with_quiet_refusals_are_errors(trainctl: Trainctl) -> None:
    result = trainctl("-q", "plan", "transformer", *SCALED, *CLUSTER)
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 1)
    assert result.stderr.startswith(f"trainctl: {REFUSAL}")
    accepted = trainctl("-q", "plan", "transformer", *SMALL, *DEVICES, "-n", "2")
    assert accepted.stderr == ""


def test_a_measured_network_is_used(trainctl: Trainctl, tmp_path: Path) -> None:
    network = {
        "format": "network/1",
        "instances": [{"host": "a", "ranks": [0]}, {"host": "b", "ranks": [1]}],
        "pairs": [
            {"source": 0, "destination": 1, "latency_s": 1e-3, "bandwidth_bytes_per_s": 1e6},
        ],
    }
    path = tmp_path / "network.json"
    path.write_text(json.dumps(network))
    options = (*SMALL, *DEVICES, "-n", "2", "--per-machine", "1", "--all-devices")
    fast, slow = planned(trainctl, *options), planned(trainctl, *options, "--network", str(path))
    assert slow["choices"][0]["step_seconds"] > 10 * fast["choices"][0]["step_seconds"]


def test_a_config_json_describes_the_model(trainctl: Trainctl, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    sizes = {"n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}
    path.write_text(json.dumps({"model_type": "gpt2", **sizes}))
    found = planned(trainctl, "--config", str(path), "--batch", "16", *DEVICES, "-n", "1")
    assert found["model_parameters"] == pytest.approx(124e6, rel=0.01)
    wrong = trainctl(
        *("plan", "transformer", "--config", str(path), "--batch", "16", *DEVICES, "-n", "1"),
        *("--model-parameters", "7G"),
    )
    assert wrong.exit_code == 2
    assert "--model-parameters says 7e+09" in wrong.stderr


def test_if_nothing_fits_the_smallest_layout_is_named(trainctl: Trainctl) -> None:
    result = trainctl(
        "plan", "transformer", *LARGE, "--device-memory", "100M", "--device-speed", "1T", "-n", "2"
    )
    assert result.exit_code == 1
    assert "the training does not fit on 1 to 2 devices of 100 MB each" in result.stderr
    assert "The smallest layout needs" in result.stderr


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--device-memory", "0"), "--device-memory '0' is not a size"),
        (("--device-memory", "1e30"), "memory is 1e+30; it must be from"),
        (("--outer-bandwidth", "-5G"), "--outer-bandwidth '-5G' is not a size"),
        (("-n", "0"), "--instances is 0; it must be at least 1"),
        (("-n", "12"), "--instances 12 is not a multiple of 8 devices per machine; set --per-machine"),
        (("--batch", "0"), "batch is 0"),
        (("--width", "770"), "width 770 is not a multiple of heads 12"),
        (("--layers", "0"), "layers is 0"),
        (("--layers", "9" * 30), "layers is 1e+30"),
        (("--outer-latency", "-1"), "outer_latency is -1"),
        (("--precision", "int8"), "precision is 'int8'; it must be one of fp32, bf16, fp16"),
        (("--strategy", "zero4"), "'zero4' is unknown; allowed are ddp, zero1"),
        (("--config", "missing.json"), "give either --config or the model's sizes"),
        (("--network", "missing.json"), "'missing.json' cannot be read"),
        (("--least-gain", "7"), "least_gain is 7"),
    ],
)
def test_impossible_values_are_refused_by_name(
    trainctl: Trainctl, options: tuple[str, ...], complaint: str
) -> None:
    result = trainctl("plan", "transformer", *SMALL, *DEVICES, "-n", "2", *options)
    assert result.exit_code == 2
    assert complaint in " ".join(result.stderr.split())


def test_missing_sizes_are_named(trainctl: Trainctl) -> None:
    result = trainctl("plan", "transformer", *DEVICES, "-n", "2", "--batch", "4", "--layers", "2")
    assert result.exit_code == 2
    assert "--heads, --width, --sequence missing" in " ".join(result.stderr.split())
