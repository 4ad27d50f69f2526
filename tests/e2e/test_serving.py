"""The service as a program: its settings, its start, and its messages when it cannot start."""

import json
import socket
from pathlib import Path

import grpc
import pytest

from tests.support.server import Server, health, refusal, run
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub


def test_thousands_of_calls_at_once_are_all_answered(server: Server) -> None:
    with server.start(), grpc.insecure_channel(server.address) as channel:
        stub = TrainingServiceStub(channel)
        calls = [stub.ListTrainingJobs.future(pb.ListTrainingJobsRequest()) for _ in range(5000)]
        assert {call.code() for call in calls} == {grpc.StatusCode.OK}


def test_the_effective_settings_are_printed_with_secrets_hidden(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[process.secret_environment]\nAWS_SECRET_ACCESS_KEY = "hunter2"\n')
    shown = run(
        "config", "-c", str(file), "-s", "scheduling.capacity=3", TRAINING_SERVICE_JOBS__STOP_GRACE="5"
    )
    settings = json.loads(shown.stdout)
    assert settings["scheduling"]["capacity"] == 3
    assert settings["jobs"]["stop_grace"] == "PT5S"
    assert "AWS_SECRET_ACCESS_KEY" in settings["process"]["secret_environment"]
    assert "hunter2" not in shown.stdout + shown.stderr


def test_flags_override_the_environment_which_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[scheduling]\ncapacity = 1\nmax_queued = 11\n[jobs]\nstop_grace = 21\n")
    environment = {
        "TRAINING_SERVICE_SCHEDULING__CAPACITY": "2",
        "TRAINING_SERVICE_SCHEDULING__MAX_QUEUED": "12",
    }
    shown = run("config", "-c", str(file), "-s", "scheduling.capacity=3", **environment)
    settings = json.loads(shown.stdout)
    scheduling = settings["scheduling"]
    assert (scheduling["capacity"], scheduling["max_queued"]) == (3, 12)
    assert (scheduling["max_queued_of_caller"], scheduling["max_processes"]) == (100_000, None)
    assert settings["jobs"]["stop_grace"] == "PT21S"


def test_config_shows_what_serve_would_use_with_the_same_options(tmp_path: Path) -> None:
    options = ["--address", "127.0.0.1:7", "--capacity", "3", "--backend", "fake"]
    settings = json.loads(run("config", "--data-dir", str(tmp_path), *options).stdout)
    assert settings["storage"]["data_dir"] == str(tmp_path)
    assert settings["server"]["address"] == "127.0.0.1:7"
    assert (settings["scheduling"]["capacity"], settings["backend"]) == (3, "fake")


def test_an_invalid_setting_is_named_with_its_source_its_value_and_the_allowed_values(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[scheduling]\ncapacity = 0\n")
    assert refusal("serve", "-c", str(file)) == (
        f"{file}: scheduling.capacity: 0 is not allowed: it must be greater than or equal to 1"
    )
    assert refusal("serve", "-s", "scheduling.capacity=many").startswith(
        "command line: scheduling.capacity: 'many' is not allowed: it must be a valid integer"
    )
    assert refusal("config", TRAINING_SERVICE_LOGGING__LEVEL="LOUD").startswith(
        "environment: logging.level: 'LOUD' is not allowed: it must be 'DEBUG', 'INFO'"
    )


def test_an_unknown_setting_is_named(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[scheduling]\ncapacty = 4\n")
    for source, line in (
        (file, refusal("serve", "-c", str(file))),
        ("environment", refusal("config", TRAINING_SERVICE_SCHEDULING__CAPACTY="4")),
    ):
        message, _, allowed = line.partition("; allowed: ")
        assert message == f"{source}: scheduling.capacty: unknown name"
        assert {"capacity", "flavors", "queues"} <= {*allowed.split(", ")}
    assert refusal("config", TRAINING_SERVICE_QUEUE__SIZE="4").startswith(
        "environment: TRAINING_SERVICE_QUEUE__SIZE: unknown setting 'queue'; allowed: backend, server,"
    )


def test_keys_of_tables_keep_their_case_and_lists_are_json() -> None:
    name = "TRAINING_SERVICE_PROCESS__SECRET_ENVIRONMENT__Hub_TOKEN"
    settings = json.loads(run("config", "-s", 'process.inherit=["LANG"]', **{name: "hunter2"}).stdout)
    assert settings["process"]["inherit"] == ["LANG"]
    assert list(settings["process"]["secret_environment"]) == ["Hub_TOKEN"]


@pytest.mark.parametrize(
    ("assignment", "problem"),
    [
        ("server.address=127.0.0.1:65536", "the port must be from 0 to 65535"),
        ("jobs.keep_finished=P1000000D", "it must be less than or equal to 36500 days"),
        ("jobs.stop_grace=-1", "it must be greater than or equal to 0"),
        ("audit.keep=3600", "audit.keep: it must be greater than or equal to 1 day"),
        ("process.inherit=[LANG", "write lists and tables as JSON"),
    ],
)
def test_impossible_values_are_refused(assignment: str, problem: str) -> None:
    assert problem in refusal("config", "-s", assignment)


def test_an_invalid_secret_is_not_shown() -> None:
    assert "hunter2" not in refusal("config", TRAINING_SERVICE_PROCESS__SECRET_ENVIRONMENT='"hunter2"')


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[scheduling\n", "not valid TOML"),
        (b"\xff\xfe", "not valid TOML"),
        (None, "cannot be read (No such file or directory)"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, problem: str) -> None:
    file = tmp_path / "settings.toml"
    if content is not None:
        file.write_bytes(content)
    assert refusal("serve", "-c", str(file)).startswith(f"{file}: {problem}")


def test_a_reserved_name_among_an_algorithms_parameters_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[algorithms.mine.parameters.RANK]\n[algorithms.mine.process]\ncommand = ["true"]\n')
    assert "'RANK' is a reserved name" in refusal("serve", "-c", str(file))


def test_an_algorithm_that_cannot_run_on_the_backend_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[algorithms.mine]\n")
    assert "algorithms.mine.process.command is missing" in refusal("serve", "-c", str(file))


def test_a_file_for_the_audit_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    for path, problem in (
        (tmp_path / "missing" / "audit.jsonl", "cannot be written (No such file or directory)"),
        (tmp_path, "is not a regular file"),
    ):
        line = refusal(
            "serve", "--data-dir", str(tmp_path), "--address", "127.0.0.1:0", "-s", f"audit.file={path}"
        )
        assert line == f"audit.file: {path} {problem}"


def test_a_second_service_on_the_same_data_is_refused(server: Server) -> None:
    with server.start():
        line = refusal("serve", "--data-dir", str(server.folder), "--address", "127.0.0.1:0")
    assert "another training service uses this job store" in line


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = refusal("serve", "--data-dir", str(tmp_path), "--address", address)
    assert line.startswith(f"server.address: cannot listen at {address}")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    line = refusal("serve", "--data-dir", str(tmp_path / "file" / "data"), "--address", "127.0.0.1:0")
    assert "its folder cannot be written" in line


def test_the_health_command_shows_whether_the_service_serves(server: Server) -> None:
    with server.start():
        asked = health("--address", server.address)
        assert (asked.returncode, asked.stdout) == (0, "SERVING\n")
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    assert refusal("health", "--address", address).startswith(f"{address} does not answer")
