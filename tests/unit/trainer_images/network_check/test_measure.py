import json
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest
from network_check.collectives import bus_factor, whole
from network_check.parameters import DEFAULT_SIZES, Parameters
from trainer_kit.errors import ParameterError

from tests.support.catalog import ALGORITHM
from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.launcher import Launcher, end_of
from training_service.settings.shipped import default_algorithms

PROGRAM = ("-m", "network_check.measure")
INSTANCE_EACH = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
# SIZE_SECONDS leaves out no size, however busy the machine is.
QUICK = {"SIZES": "8,65536", "REPEATS": "2", "SIZE_SECONDS": "60"}


def test_three_instances_measure_all_pairs_and_collectives(
    tmp_path: Path, forks: Sequence[ForkServer]
) -> None:
    model = tmp_path / "model"
    with Launcher(tmp_path, forks=forks) as launcher:
        ranks = launcher.start_group(3, *PROGRAM, MODEL_URI=str(model), **QUICK, **INSTANCE_EACH)
        ends = [end_of(rank) for rank in ranks]
    assert [end.code for end in ends] == [0] * 3, [end.stderr for end in ends]
    found = json.loads((model / "network.json").read_text())
    assert (found["format"], found["world_size"], found["backend"]) == ("network/1", 3, "gloo")
    assert {(pair["source"], pair["destination"]) for pair in found["pairs"]} == {*permutations(range(3), 2)}
    assert all(pair["latency_s"] > 0 < pair["bandwidth_bytes_per_s"] for pair in found["pairs"])
    by_name = {each["operation"]: each for each in found["collectives"]}
    assert list(by_name) == [
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "broadcast",
        "all_to_all",
        "barrier",
    ]
    largest = by_name["all_reduce"]["sizes"][-1]
    assert largest["bytes"] == whole(65536, 3)
    assert largest["algorithm_bytes_per_s"] == pytest.approx(largest["bytes"] / largest["seconds"])
    assert largest["bus_bytes_per_s"] == pytest.approx(largest["algorithm_bytes_per_s"] * 4 / 3)
    assert "::progress::" in ends[0].stdout
    assert "median of 6 links" in ends[0].stdout


def test_the_end_of_a_rank_is_named_with_the_pair_that_was_measured(
    tmp_path: Path, forks: Sequence[ForkServer]
) -> None:
    endless = {"SIZES": "8000000", "REPEATS": "10000", "SIZE_SECONDS": "1000", **INSTANCE_EACH}
    with Launcher(tmp_path, forks=forks) as launcher:
        first, second = launcher.start_group(2, *PROGRAM, MODEL_URI=str(tmp_path / "model"), **endless)
        assert first.stdout
        assert "measuring" in first.stdout.readline()
        second.kill()
        end = end_of(first)
    assert end.code == 1
    assert "error: rank 0 lost the network while measuring the pair rank 0 (instance 0, " in end.stderr


def test_one_rank_has_nothing_to_measure(tmp_path: Path, forks: Sequence[ForkServer]) -> None:
    with Launcher(tmp_path, forks=forks) as launcher:
        end = launcher.run(*PROGRAM, MODEL_URI=str(tmp_path / "model"))
    assert end.code == 0
    assert "nothing to measure: the job has one rank" in end.stdout
    found = json.loads((tmp_path / "model" / "network.json").read_text())
    assert (found["pairs"], found["collectives"], found["median"]) == ([], [], None)


@pytest.mark.parametrize(
    "sizes", ["", "0", "8,many", "-1", "1.5", str(2**31), ",".join(map(str, range(1, 40)))]
)
def test_invalid_sizes_are_refused(sizes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZES", sizes or ",")
    with pytest.raises(ParameterError, match="SIZES must be at most 32 numbers of bytes from 1 to"):
        Parameters.from_environment()


def test_a_factor_that_every_link_exceeds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOW_FACTOR", "1")
    with pytest.raises(ParameterError, match="SLOW_FACTOR must be a finite number above 1, but is '1'"):
        Parameters.from_environment()


def test_the_declaration_has_the_bounds_and_defaults_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = default_algorithms(ALGORITHM)["network-check"].parameters
    for name in declared:
        monkeypatch.delenv(name, raising=False)
    defaults = Parameters.from_environment()
    assert f"({DEFAULT_SIZES})" in declared["SIZES"].description
    assert f"({defaults.repeats})" in declared["REPEATS"].description
    assert f"({defaults.seconds:g})" in declared["SIZE_SECONDS"].description
    assert f"({defaults.slow_factor:g})" in declared["SLOW_FACTOR"].description
    assert declared["SLOW_FACTOR"].exclusive_minimum == 1


def test_bus_bandwidth_has_the_factors_of_nccl_tests() -> None:
    names = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
    assert [bus_factor(name, 4) for name in names] == [1.5, 0.75, 0.75, 0.75, 1]
