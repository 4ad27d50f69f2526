"""A request's parameters set only variables that the operator has declared, so they cannot run code."""

import json
import re
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from job_tracker.catalog import Algorithm, Parameter
from tests.support.catalog import ALGORITHM
from tests.support.patience import PATIENCE
from tests.support.server import Server
from training_service._generated import training_service_pb2 as pb
from training_service.client import InvalidRequest, TrainingClient
from training_service.settings.loading import SettingsError, load
from training_service.settings.shipped import default_algorithms

ROOT = Path(__file__).parents[2]
DANGEROUS = (
    *("OPENSSL_CONF", "SHELLOPTS", "PS4", "CUDA_INJECTION64_PATH", "NCCL_NET_PLUGIN", "OMP_TOOL_LIBRARIES"),
    *("TORCH_LOGS", "TORCH_LOGS_OUT", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "XLA_FLAGS"),
    *("TF_PLUGGABLE_DEVICE_LIBRARY_PATH", "FI_PROVIDER_PATH", "UCX_MODULE_DIR", "TRITON_CACHE_DIR", "CC"),
    *("CXX", "FSSPEC_CONFIG_DIR", "HOSTALIASES", "REQUESTS_CA_BUNDLE", "BROWSER", "EDITOR", "PAGER"),
    *("PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV", "GIT_SSH_COMMAND", "MPLBACKEND"),
    *("PJRT_NAMES_AND_LIBRARY_PATHS", "HSA_TOOLS_LIB", "TORCHINDUCTOR_CACHE_DIR", "LESSOPEN", "CFLAGS"),
)
"""Variables that make a process load, compile, trust or start something else."""
OF_THE_SERVICE = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "JOB_ID", "MODEL_URI", "TRAINING_PARAMETERS", "HOME")
SHOW = "import json, os; print(json.dumps(dict(os.environ)))"
LARGEST = "\u00e9" * 4096


@pytest.fixture
def server(tmp_path: Path, storage: Path) -> Iterator[Server]:
    """A service with its built-in algorithms, not started yet. It is stopped afterwards."""
    made = Server(tmp_path)
    (tmp_path / "config.toml").write_text("")
    yield made
    assert made.end(signal.SIGTERM) == 0


def refused(client: TrainingClient, folder: Path, algorithm: str, parameters: Mapping[str, str]) -> str:
    """Submit a job that is refused with INVALID_ARGUMENT and writes nothing. Return the message."""
    before = files_in(folder)
    with pytest.raises(InvalidRequest) as caught:
        client.submit(algorithm, "1", "v1", parameters=dict(parameters))
    assert list(client.list()) == []
    assert files_in(folder) == before
    return str(caught.value)


def files_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if not path.name.startswith("jobs.db")}


@pytest.mark.parametrize("algorithm", default_algorithms(ALGORITHM))
def test_a_logging_hook_and_a_browser_cannot_inject_a_command(server: Server, algorithm: str) -> None:
    command = f'/bin/sh -c "id > {server.folder}/pwned" #%s'
    with server.start() as client:
        message = refused(
            client, server.folder, algorithm, {"TORCH_LOGS": "antigravity.x", "BROWSER": command}
        )
    assert "the algorithm has no such parameter; allowed: " in message
    assert all(name in message for name in default_algorithms(ALGORITHM)[algorithm].parameters)


def test_built_in_algorithms_refuse_all_dangerous_names(server: Server) -> None:
    with server.start() as client:
        for algorithm in default_algorithms(ALGORITHM):
            for name in (*DANGEROUS, *OF_THE_SERVICE):
                message = refused(client, server.folder, algorithm, {name: "x"})
                assert message.startswith(f"parameters.{name}: the algorithm has no such parameter"), message


def test_no_shipped_configuration_has_free_parameters() -> None:
    files = [
        *ROOT.glob("deploy/**/*.toml"),
        *ROOT.glob("trainer_images/**/*.toml"),
        *ROOT.glob("training_service/**/*.toml"),
    ]
    assert len(files) > 3
    for file in files:
        assert not set(re.findall(r"free_parameters|other_parameters", file.read_text())), file


def test_free_parameters_reach_a_process_only_inside_one_variable(server: Server) -> None:
    (server.folder / "config.toml").write_text(
        f"""
        [algorithms.free]
        free_parameters = true
        parameters.LR = {{ type = "float" }}
        process.command = ["python", "-I", "-c", {json.dumps(SHOW)}]
        """
    )
    free = dict.fromkeys((*DANGEROUS, *OF_THE_SERVICE), 'a "value"; $(id)')
    large = {f"LARGE_{number}": LARGEST for number in range(7)}
    with server.start() as client:
        none, some, many = (environment_of(client, sent) for sent in ({}, {"LR": "1", **free}, large))
    assert none.pop("TRAINING_PARAMETERS") == "{}"
    assert json.loads(some.pop("TRAINING_PARAMETERS")) == free
    assert json.loads(many.pop("TRAINING_PARAMETERS")) == large
    assert some.pop("LR") == "1"
    assert some.keys() == none.keys() == many.keys()
    assert not {'a "value"; $(id)', LARGEST} & {*some.values(), *many.values()}
    assert {name for name in DANGEROUS if name in none} == {"PATH"}


def environment_of(client: TrainingClient, sent: Mapping[str, str]) -> dict[str, str]:
    """Run a job with these parameters, and return the environment of its process."""
    job_id = client.submit("free", "1", "v1", parameters=dict(sent))
    assert client.wait(job_id, timeout=PATIENCE).status == pb.succeed
    environment: dict[str, str] = json.loads("".join(piece.text for piece in client.logs(job_id)))
    return environment


def test_free_parameters_too_large_for_a_variable_are_refused(server: Server) -> None:
    (server.folder / "config.toml").write_text(
        '[algorithms.free]\nfree_parameters = true\nprocess.command = ["true"]\n'
    )
    with server.start() as client:
        message = refused(client, server.folder, "free", {f"P{number}": '"' * 4096 for number in range(15)})
    assert message.startswith("parameters: the parameters that the algorithm does not declare have 123")
    assert message.endswith(" bytes as JSON; at most 98304 are allowed")


@pytest.mark.parametrize("name", [*DANGEROUS, *OF_THE_SERVICE])
def test_declaring_a_dangerous_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' is a reserved name"):
        Algorithm(parameters={name: Parameter()})


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "CUDA_VISIBLE_DEVICES", "TORCH_LOGS", "CC", "XLA_FLAGS"])
def test_operators_can_set_such_names_in_an_algorithms_environment(name: str) -> None:
    assert Algorithm(environment={name: "x"}).environment == {name: "x"}


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_configuration_of_an_earlier_version_is_refused_with_instructions(
    tmp_path: Path, value: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'[algorithms.mine]\nother_parameters = {value}\nprocess.command = ["true"]\n')
    with pytest.raises(SettingsError) as caught:
        load(file)
    assert str(caught.value) == (
        f"{file}: algorithms.mine: other_parameters is no longer a setting: a variable with any name can "
        "run any program. Declare the parameters that the program reads, or set free_parameters = true and "
        "read the others from the JSON object in TRAINING_PARAMETERS"
    )
