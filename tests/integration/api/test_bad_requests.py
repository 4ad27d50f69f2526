"""Bad requests get a clear error, and nothing is stored."""

import asyncio
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from job_tracker.catalog.entries import HOW_TO_ADD
from tests.support.api_service import CAPACITY, Serve, Service, metadata
from training_service._generated import training_service_pb2 as pb
from training_service.api.interceptors import LARGEST_MESSAGE

INVALID = grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND
METHODS = ("Train", "GetTrainingStatus", "ListTrainingJobs", "CancelTraining")
STREAMS = ("WatchTraining", "GetTrainingLogs")

LONG = "x" * 10_000
NO_JOBS = (0, 2, -1, 4711, 2**31 - 1, -(2**31))
NO_PATH_PARTS = (
    *("..", ".", "a/../b", "a/b", "/etc", "a\\b", "%2e%2e", "%2e%2e%2f", "a..b", "v\x00", "\x00"),
    *("s3://bucket/key", "file:", "github::x", "a::b", "*", "v?", "[ab]", "~", "~root", "$HOME", "`id`"),
    *("{0.__class__}", "{dataset_id}", "{", "%s", "a b", " a", "a ", "-a", "a\n", "a\r\nb", "a\tb"),
    *("😀", "ａ", "a\u200b", "\u202etxt", "a\u0301", "é", "a\u2215b", "．．", LONG),
)
NO_JOB_NAMES = (
    *("a/b", "../a", "/a", "-a", ".a", " a", "   ", "a\nb", "a\x00", "a\x1b[31m", "a;b", "a'b", '"', "{a}"),
    *("😀", "a\u200bb", "a\u202eb", "a\u2028b", "\ufeffa", "\u0301a"),
)
NO_PARAMETER_NAMES = (
    *("", " ", "A=B", "A B", "A-B", "A.B", "a/b", "1A", "A\n", "A\x00", "BASH_FUNC_x%%", "${A}", "😀"),
    *("É", "Ａ", "A\u200b", "\u202eKNAR", LONG),
)
RESERVED_NAMES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "JOB_ID", "JOB_ATTEMPT"),
    *("ALGORITHM_NAME", "MODEL_NAME", "MODEL_URI", "CHECKPOINT_URI", "METADATA_STORE_SERVER"),
    *("TRAINING_DATA_URI", "TRAINING_ANYTHING", "PET_NNODES", "MINIO_SERVER", "TF_CONFIG"),
    *("PATH", "HOME", "LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV", "TMPDIR"),
    *("AWS_SECRET_ACCESS_KEY", "https_proxy", "HTTPS_PROXY", "NODE_OPTIONS", "GIT_SSH_COMMAND"),
    *("TORCH_LOGS", "BROWSER", "OPENSSL_CONF", "CC", "NCCL_NET_PLUGIN"),
)
NO_MESSAGES = (b"\xff", b"no protobuf", b"\x0a\xff\xff\xff\xff\x0f", b"\x00" * 64)


async def test_an_empty_required_field_is_refused_by_name(untracked: Service) -> None:
    advice = "; give a dataset and its version (in trainctl: --dataset and --version)"
    for field, then in (("algorithm", ""), ("dataset_id", advice), ("train_data_version_hash", advice)):
        details = await untracked.refuses(untracked.train(**{field: ""}), INVALID)
        assert details == f"{field}: must not be empty{then}"


async def test_an_empty_request_is_refused(untracked: Service) -> None:
    details = await untracked.refuses(untracked.stub.Train(pb.TrainRequest()), INVALID)
    assert details == "algorithm: must not be empty"


async def test_the_refusal_of_an_unknown_algorithm_lists_the_known_ones(untracked: Service) -> None:
    for name in ("nope", "Program", " program", "program\n", "../program", "😀", "\x00", LONG):
        details = await untracked.refuses(untracked.train(algorithm=name), NOT_FOUND)
        expected = f"{quoted(name)} doesn't exist; configured: program, strict; {HOW_TO_ADD['algorithm']}"
        assert details == f"algorithm: {expected}"


async def test_the_refusal_of_an_unknown_dataset_lists_the_known_ones(untracked: Service) -> None:
    details = await untracked.refuses(untracked.train(dataset_id="nope"), NOT_FOUND)
    assert details == f"dataset_id: 'nope' doesn't exist; configured: 1; {HOW_TO_ADD['dataset']}"


async def test_the_refusal_of_an_unknown_version_names_the_missing_file(
    untracked: Service, storage: Path
) -> None:
    details = await untracked.refuses(untracked.train(train_data_version_hash="v2"), NOT_FOUND)
    assert details.startswith("train_data_version_hash: version 'v2' of dataset '1' doesn't exist")
    advice = "to add the missing version, write its files to its folder"
    assert details.endswith(f"v2/examples.csv; complete versions: v1; {advice}")


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        ({"max_attempts": 0}, "retry_policy.max_attempts: 0 is not allowed; allowed: 1 to 100"),
        ({"max_attempts": -3}, "retry_policy.max_attempts: -3 is not allowed; allowed: 1 to 100"),
        ({"max_attempts": 101}, "retry_policy.max_attempts: 101 is not allowed; allowed: 1 to 100"),
        (
            {"backoff": Duration(seconds=-1)},
            "retry_policy.backoff: -1 s is not allowed; allowed: 0 to 3650 days",
        ),
        ({"backoff": Duration(seconds=2**62)}, "is not allowed; allowed: 0 to 3650 days"),
        ({"max_backoff": Duration(nanos=-1)}, "retry_policy.max_backoff: -1e-09 s is not allowed"),
        (
            {"backoff": Duration(seconds=60), "max_backoff": Duration(seconds=30)},
            "retry_policy.backoff: 0:01:00 is not allowed: max_backoff is 0:00:30",
        ),
        ({"backoff": Duration(seconds=3600)}, "is not allowed: max_backoff is 0:10:00"),
        ({"retry_on": ["crashed", "bad luck"]}, "retry_policy.retry_on: unknown category 'bad luck'"),
        ({"retry_on": [""]}, "retry_policy.retry_on: unknown category ''; allowed: any, crashed"),
    ],
)
async def test_an_invalid_retry_policy_is_refused(
    untracked: Service, policy: dict[str, Any], complaint: str
) -> None:
    request = pb.TrainRequest(metadata=metadata(), retry_policy=pb.RetryPolicy(**policy))
    assert complaint in await untracked.refuses(untracked.stub.Train(request), INVALID)


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        ({"on_nonfinite": "stop"}, "number_policy.on_nonfinite: 'stop' is not allowed; allowed: flag, fail"),
        ({"metrics": [""]}, "number_policy.metrics: '' is not allowed: use 1 to 128 printable characters"),
        ({"metrics": ["a"] * 17}, "number_policy.metrics: has 17 patterns; at most 16 are allowed"),
    ],
)
async def test_an_invalid_number_policy_is_refused(
    untracked: Service, policy: dict[str, Any], complaint: str
) -> None:
    request = pb.TrainRequest(metadata=metadata(), number_policy=pb.NumberPolicy(**policy))
    assert complaint in await untracked.refuses(untracked.stub.Train(request), INVALID)


@pytest.mark.parametrize("field", ["queue", "start", "run"])
async def test_an_invalid_deadline_is_refused(untracked: Service, field: str) -> None:
    for duration in (Duration(seconds=-1), Duration(seconds=2**40)):
        request = pb.TrainRequest(metadata=metadata(), deadlines=pb.Deadlines(**{field: duration}))
        details = await untracked.refuses(untracked.stub.Train(request), INVALID)
        assert details.startswith(f"deadlines.{field}: ")
        assert details.endswith("s is not allowed; allowed: 0 to 3650 days")


@pytest.mark.parametrize("field", ["dataset_id", "train_data_version_hash", "output_model_name"])
async def test_a_value_that_could_leave_the_storage_is_refused(untracked: Service, field: str) -> None:
    for value in NO_PATH_PARTS:
        details = await untracked.refuses(untracked.train(**{field: value}), INVALID)
        assert details.startswith(
            f"{field}: {quoted(value)} is not allowed: use at most 128 of the letters A to Z"
        )


async def test_a_name_with_other_characters_is_refused(untracked: Service) -> None:
    for name in NO_JOB_NAMES:
        details = await untracked.refuses(untracked.train(name=name), INVALID)
        assert details.startswith(
            f"name: {quoted(name)} is not allowed: use letters, digits, spaces and . _ -, "
        )


async def test_a_name_that_is_too_long_is_refused(untracked: Service) -> None:
    for length in (129, 10_000, 200_000):
        details = await untracked.refuses(untracked.train(name="x" * length), INVALID)
        assert details == f"name: has {length} characters; at most 128 are allowed"


async def test_a_name_that_is_slow_to_normalise_is_refused_at_once(untracked: Service) -> None:
    # Sorting combining marks takes quadratic time: a minute of CPU time for this name.
    name = "a" + "\u0301" * 60_000 + "\u0327" * 60_000
    began = time.process_time()
    details = await untracked.refuses(untracked.train(name=name), INVALID)
    assert time.process_time() - began < 10
    assert details == "name: has 120001 characters; at most 128 are allowed"


async def test_an_invalid_number_of_instances_is_refused(untracked: Service) -> None:
    for value in ("0", "-1", "-0", "1.5", "x", "", " 1", "1 ", "1e0", "0x1", "1_0", "٣", "９"):
        details = await untracked.refuses(untracked.train({"PARALLEL_INSTANCES": value}), INVALID)
        assert details == (
            f"parameters.PARALLEL_INSTANCES: {value!r} is not a whole number of at least 1 "
            f"and of at most {CAPACITY} (the service's capacity)"
        )


async def test_too_many_instances_are_refused(untracked: Service) -> None:
    for algorithm, value, most in (
        *(
            ("program", value, f"{CAPACITY} (the service's capacity)")
            for value in ("9", "9" * 18, "9" * 19, "9" * 4000)
        ),
        ("strict", "3", "2 (the algorithm's max_instances)"),
    ):
        call = untracked.train({"PARALLEL_INSTANCES": value}, algorithm=algorithm)
        assert await untracked.refuses(call, INVALID) == (
            f"parameters.PARALLEL_INSTANCES: {quoted(value)} is not a whole number of at least 1 "
            f"and of at most {most}"
        )


async def test_a_parameter_of_another_type_or_range_is_refused(untracked: Service) -> None:
    for name, value, allowed in (
        *(
            ("EPOCHS", value, "a whole number of at least 1 and of at most 10000")
            for value in ("x", "1.0", "0")
        ),
        ("EPOCHS", "10001", "a whole number of at least 1 and of at most 10000"),
        ("SEED", "2147483648", "a whole number of at least 0 and of at most 2147483647"),
        *(
            ("LR", value, "a number greater than 0 and of at most 1000")
            for value in ("0", "nan", "inf", "1e400")
        ),
        ("SHUFFLE", "yes", "true, false, 1 or 0"),
    ):
        details = await untracked.refuses(untracked.train({name: value}), INVALID)
        assert details == f"parameters.{name}: {value!r} is not {allowed}"


async def test_a_parameter_outside_its_choices_is_refused(untracked: Service) -> None:
    for value in ("rmsprop", "", "SGD", "😀" * 4000):
        details = await untracked.refuses(untracked.train({"OPTIMISER": value}), INVALID)
        assert details == f"parameters.OPTIMISER: {quoted(value)} is not allowed; allowed: sgd, adam"


async def test_a_value_with_control_characters_is_refused(untracked: Service) -> None:
    for value in ("a\nb", "\r", "\x00", "a\x1b[2J", "\u202eab", "a\u200bb", "a\u2028b", "\ufeff", "\x7f"):
        details = await untracked.refuses(untracked.train({"NOTE": value}), INVALID)
        assert details == (
            f"parameters.NOTE: {value!r} is not allowed: it contains control characters or line breaks"
        )


async def test_a_value_that_is_too_long_is_refused(untracked: Service) -> None:
    details = await untracked.refuses(untracked.train({"NOTE": LONG}), INVALID)
    assert details == "parameters.NOTE: the value has 10000 characters; at most 4096 are allowed"


async def test_a_reserved_name_is_refused_like_any_undeclared_name(untracked: Service) -> None:
    for name in RESERVED_NAMES:
        details = await untracked.refuses(untracked.train({name: "1"}, algorithm="strict"), INVALID)
        assert details == (
            f"parameters.{name}: the algorithm has no such parameter; allowed: EPOCHS, PARALLEL_INSTANCES"
        )


async def test_an_invalid_name_of_a_variable_is_refused(untracked: Service) -> None:
    for name in NO_PARAMETER_NAMES:
        details = await untracked.refuses(untracked.train({name: "1"}), INVALID)
        assert details == (
            f"parameters.{quoted(name)[1:-1]}: the name is not allowed; "
            "allowed: at most 128 letters, digits and _, not beginning with a digit"
        )


async def test_an_undeclared_parameter_is_refused(untracked: Service) -> None:
    for name in ("LR", "epochs", "parallel_instances"):
        details = await untracked.refuses(untracked.train({name: "1"}, algorithm="strict"), INVALID)
        assert details == (
            f"parameters.{name}: the algorithm has no such parameter; allowed: EPOCHS, PARALLEL_INSTANCES"
        )


async def test_too_many_parameters_are_refused(untracked: Service) -> None:
    for parameters, complaint in (
        ({"NOTE": "x" * 65_533}, "has 65537 bytes in all; at most 65536 are allowed"),
        ({f"P{n:03}": "x" * 300 for n in range(250)}, "has 76000 bytes in all; at most 65536 are allowed"),
        ({f"P{n}": "" for n in range(257)}, "has 257 entries; at most 256 are allowed"),
    ):
        for request_key in ("", "a key"):
            details = await untracked.refuses(untracked.train(parameters, request_key), INVALID)
            assert details == f"parameters: {complaint}"


async def test_far_too_many_parameters_are_refused_without_parsing(untracked: Service) -> None:
    in_one = pb.TrainRequest(metadata=metadata({"NOTE": "x" * 400_000})).SerializeToString()
    # Many entries, which are slow to parse.
    names = (f"{number:07}".encode() for number in range(30_000))
    in_many = packed(b"".join(packed(packed(name, tag=1), tag=5) for name in names), tag=1)
    for data in (in_one, in_many):
        details = await untracked.refuses(untracked.call_raw("Train", data), INVALID)
        assert details == (
            f"request: the message has {len(data)} bytes; at most 262144 are allowed, "
            "65536 of them for parameters"
        )


@pytest.mark.parametrize("compression", [None, grpc.Compression.Gzip])
async def test_a_message_that_is_too_large_is_refused(
    untracked: Service, compression: grpc.Compression | None
) -> None:
    large = {"NOTE": "x" * LARGEST_MESSAGE}
    request = pb.TrainRequest(metadata=metadata(large))
    call = untracked.stub.Train(request, compression=compression)
    await untracked.refuses(call, grpc.StatusCode.RESOURCE_EXHAUSTED)


async def test_an_unknown_job_is_not_found(untracked: Service) -> None:
    await untracked.train()
    for job_id in NO_JOBS:
        request = pb.GetTrainingStatusRequest(job_id=job_id).SerializeToString()
        for method in ("GetTrainingStatus", "CancelTraining"):
            details = await untracked.refuses(untracked.call_raw(method, request), NOT_FOUND)
            assert details == f"Job {job_id} doesn't exist"
        for method in STREAMS:
            details = await untracked.refuses(untracked.first_raw(method, request), NOT_FOUND)
            assert details == f"Job {job_id} doesn't exist"


async def test_an_unknown_rank_is_refused(untracked: Service) -> None:
    job_id = await untracked.train({"PARALLEL_INSTANCES": "2"})
    for rank in (-1, 2, 2**31 - 1, -(2**31)):
        for follow in (False, True):
            request = pb.GetTrainingLogsRequest(job_id=job_id, rank=rank, follow=follow)
            details = await untracked.refuses(anext(aiter(untracked.stub.GetTrainingLogs(request))), INVALID)
            assert details == f"rank: {rank} is not a rank of job 1; allowed: 0 to 1"


async def test_negative_tail_lines_are_refused(untracked: Service) -> None:
    request = pb.GetTrainingLogsRequest(job_id=await untracked.train(), tail_lines=-1)
    details = await untracked.refuses(anext(aiter(untracked.stub.GetTrainingLogs(request))), INVALID)
    assert details == "tail_lines: -1 is not allowed; at least 0 is allowed"


async def test_a_page_size_out_of_range_is_refused(untracked: Service) -> None:
    for size in (-1, 1001, 2**31 - 1):
        call = untracked.stub.ListTrainingJobs(pb.ListTrainingJobsRequest(page_size=size))
        assert (
            await untracked.refuses(call, INVALID) == f"page_size: {size} is not allowed; allowed: 0 to 1000"
        )


async def test_an_invalid_page_token_is_refused(untracked: Service) -> None:
    for token in ("x", "-1", "1.5", " 1", "1\n", "٣", "0x1", "1; DROP TABLE jobs", LONG):
        call = untracked.stub.ListTrainingJobs(pb.ListTrainingJobsRequest(page_token=token))
        details = await untracked.refuses(call, INVALID)
        assert details == f"page_token: {quoted(token)} is not allowed; send the next_page_token of a page"


async def test_a_page_token_may_have_many_digits(untracked: Service) -> None:
    await untracked.train()
    for token, found in (
        ("0", 0),
        ("1", 0),
        ("2", 1),
        ("9" * 19, 1),
        ("9" * 10_000, 1),
        ("0" * 10_000, 0),
        (f"{'0' * 10_000}2", 1),
    ):
        page = await untracked.stub.ListTrainingJobs(pb.ListTrainingJobsRequest(page_token=token))
        assert len(page.jobs) == found, token


async def test_an_unknown_status_is_refused(untracked: Service) -> None:
    for number in (6, 99, -1, 2**31 - 1):
        data = packed(varint(number), tag=1)
        details = await untracked.refuses(untracked.call_raw("ListTrainingJobs", data), INVALID)
        assert details == (
            f"statuses: {number} is not a TrainingStatus; "
            "allowed: queuing, launch, running, succeed, failure, cancelled (0 to 5)"
        )


async def test_a_request_key_that_is_too_long_or_not_printable_is_refused(untracked: Service) -> None:
    for key in ("x" * 129, LONG, "a\nb", "\x00", "\u202e", "a\u200bb"):
        details = await untracked.refuses(untracked.train({}, key), INVALID)
        assert details == (f"request_key: {quoted(key)} is not allowed: use at most 128 printable characters")


async def test_bytes_that_are_not_a_message_are_an_invalid_argument(untracked: Service) -> None:
    for data in NO_MESSAGES:
        for method in METHODS:
            details = await untracked.refuses(untracked.call_raw(method, data), INVALID)
            assert details == f"the request is not a valid message for /training.TrainingService/{method}"
        for method in STREAMS:
            details = await untracked.refuses(untracked.first_raw(method, data), INVALID)
            assert details == f"the request is not a valid message for /training.TrainingService/{method}"


async def test_invalid_utf_8_is_an_invalid_argument(untracked: Service) -> None:
    data = packed(packed(b"\xff\xfe\xfd", tag=1), tag=1)  # metadata.algorithm
    details = await untracked.refuses(untracked.call_raw("Train", data), INVALID)
    assert details == "the request is not a valid message for /training.TrainingService/Train"


async def test_a_call_that_does_not_exist_is_unimplemented(untracked: Service) -> None:
    await untracked.refuses(untracked.call_raw("Untrain", b""), grpc.StatusCode.UNIMPLEMENTED)


async def test_a_full_queue_refuses_jobs_with_the_number_of_queued_ones(serve: Serve) -> None:
    service = await serve(tracked=False, scheduling={"max_queued": 2})
    for _ in range(2):
        await service.train()
    details = await service.refuses(service.train(), grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert details.startswith("2 jobs are queued, which is the limit (")


async def test_an_error_that_lists_thousands_of_algorithms_is_shortened(serve: Serve) -> None:
    many: dict[str, Any] = {f"algorithm-number-{number:05}": {} for number in range(2000)}
    service = await serve(tracked=False, algorithms=many)
    details = await service.refuses(service.train(algorithm="nope"), NOT_FOUND)
    assert details.startswith("algorithm: 'nope' doesn't exist; configured: algorithm-number-00000, ")
    assert details.endswith(f", and 1980 more; {HOW_TO_ADD['algorithm']}")


async def test_the_service_survives_every_kind_of_malformed_request(service: Service) -> None:
    nonsense = [*NO_MESSAGES, b"\xff" * 100_000]
    calls = [service.call_raw(method, data) for method in METHODS for data in nonsense]
    await asyncio.gather(*calls, return_exceptions=True)
    await service.seen(await service.train(), pb.succeed)


def quoted(text: str) -> str:
    """A text as messages quote it: escaped and shortened."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def varint(number: int) -> bytes:
    """A number as a protobuf varint."""
    number &= 2**64 - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def packed(data: bytes, *, tag: int) -> bytes:
    """A length-delimited protobuf field."""
    return varint(tag << 3 | 2) + varint(len(data)) + data


def test_the_helpers_write_valid_protobuf() -> None:
    assert pb.GetTrainingStatusRequest.FromString(b"\x08" + varint(-1)).job_id == -1
    request = pb.TrainRequest.FromString(packed(packed(packed(b"A", tag=1), tag=5), tag=1))
    assert dict(request.metadata.parameters) == {"A": ""}


async def test_options_of_pods_are_refused_by_a_backend_without_them(untracked: Service) -> None:
    request = pb.TrainRequest(metadata=metadata(), pod_options=pb.PodOptions(resources={"cpu": "2"}))
    details = await untracked.refuses(untracked.stub.Train(request), INVALID)
    assert details == "pod_options: must be empty: this service does not run jobs as pods"
