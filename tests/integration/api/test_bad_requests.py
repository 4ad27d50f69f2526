"""Bad input over the wire: a clear error at the door, and nothing written."""

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path

import grpc
import pytest

from tests.integration.api.conftest import CAPACITY, Serve, Service, metadata
from training_service._generated import training_service_pb2 as pb

INVALID = grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND
LONG = "x" * 10_000
METHODS = ["Train", "GetTrainingStatus", "ListTrainingJobs", "CancelTraining"]
STREAMS = ["WatchTraining", "GetTrainingLogs"]

NO_PATH_PARTS = [
    *("..", ".", "a/../b", "a/b", "/etc", "a\\b", "%2e%2e", "%2e%2e%2f", "a..b", "v\x00", "\x00"),
    *("s3://bucket/key", "file:", "github::x", "a::b", "*", "v?", "[ab]", "~", "~root", "$HOME", "`id`"),
    *("{0.__class__}", "{dataset_id}", "{", "%s", "a b", " a", "a ", "-a", "a\n", "a\r\nb", "a\tb"),
    *("😀", "ａ", "a\u200b", "\u202etxt", "a\u0301", "é", "a\u2215b", "．．", LONG),  # noqa: RUF001
]


@pytest.mark.parametrize("field", ["algorithm", "dataset_id", "train_data_version_hash"])
async def test_an_empty_required_field_is_refused_by_name(door: Service, field: str) -> None:
    assert await door.refuses(door.train(**{field: ""}), INVALID) == f"{field}: must not be empty"


async def test_a_request_without_anything_is_refused(door: Service) -> None:
    details = await door.refuses(door.stub.Train(pb.TrainRequest()), INVALID)
    assert details == "algorithm: must not be empty"


@pytest.mark.parametrize(
    "name", ["nope", "Program", " program", "program\n", "../program", "😀", "\x00", LONG]
)
async def test_an_unknown_algorithm_is_refused_saying_which_there_are(door: Service, name: str) -> None:
    details = await door.refuses(door.train(algorithm=name), NOT_FOUND)
    assert details.startswith(f"algorithm: {shown(name)} ")
    assert details.endswith("configured are: program, strict")


async def test_an_unknown_dataset_is_refused_saying_which_there_are(door: Service) -> None:
    details = await door.refuses(door.train(dataset_id="nope"), NOT_FOUND)
    assert details == "dataset_id: 'nope' doesn't exist; configured are: 1"


async def test_an_unknown_version_is_refused_saying_what_is_missing(door: Service, storage: Path) -> None:
    details = await door.refuses(door.train(train_data_version_hash="v2"), NOT_FOUND)
    assert details.startswith("train_data_version_hash: version 'v2' of dataset '1' doesn't exist")
    assert details.endswith("v2/examples.csv")


@pytest.mark.parametrize("field", ["dataset_id", "train_data_version_hash", "output_model_name"])
@pytest.mark.parametrize("value", NO_PATH_PARTS)
async def test_what_could_lead_out_of_the_storage_is_refused(door: Service, field: str, value: str) -> None:
    details = await door.refuses(door.train(**{field: value}), INVALID)
    assert details.startswith(f"{field}: {shown(value)} is not allowed: at most 128 of the letters A to Z")


@pytest.mark.parametrize(
    "name",
    [
        *(
            "a/b",
            "../a",
            "/a",
            "-a",
            ".a",
            " a",
            "   ",
            "a\nb",
            "a\x00",
            "a\x1b[31m",
            "a;b",
            "a'b",
            '"',
            "{a}",
        ),
        *("😀", "a\u200bb", "a\u202eb", "a\u2028b", "\ufeffa", "\u0301a"),
    ],
)
async def test_a_name_of_other_characters_is_refused(door: Service, name: str) -> None:
    details = await door.refuses(door.train(name=name), INVALID)
    assert details.startswith(f"name: {shown(name)} is not allowed: begin with a letter or digit, then ")


@pytest.mark.parametrize("length", [129, 10_000, 1_000_000])
async def test_a_name_that_is_too_long_is_refused(door: Service, length: int) -> None:
    details = await door.refuses(door.train(name="x" * length), INVALID)
    assert details == f"name: has {length} characters; at most 128 are allowed"


async def test_a_name_that_takes_hours_to_normalise_is_refused_at_once(door: Service) -> None:
    # Putting combining marks into their canonical order takes time with the square of their number.
    name = "a" + "\u0301" * 60_000 + "\u0327" * 60_000
    started = time.monotonic()
    details = await door.refuses(door.train(name=name), INVALID)
    assert time.monotonic() - started < 5
    assert details == "name: has 120001 characters; at most 128 are allowed"


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "x", "", " 1", "1 ", "1e0", "0x1", "1_0", "٣", "９"])  # noqa: RUF001
async def test_a_number_of_instances_that_is_none_is_refused(door: Service, value: str) -> None:
    details = await door.refuses(door.train({"PARALLEL_INSTANCES": value}), INVALID)
    assert details == (
        f"parameters.PARALLEL_INSTANCES: {value!r} is not a whole number of at least 1 "
        f"and of at most {CAPACITY}"
    )


@pytest.mark.parametrize(
    ("algorithm", "value", "most"),
    [("program", "9", 8), ("program", "9" * 18, 8), ("program", "9" * 4000, 8), ("strict", "3", 2)],
)
async def test_more_instances_than_there_can_be_are_refused(
    door: Service, algorithm: str, value: str, most: int
) -> None:
    details = await door.refuses(door.train({"PARALLEL_INSTANCES": value}, algorithm=algorithm), INVALID)
    assert details.startswith(f"parameters.PARALLEL_INSTANCES: {shown(value)} is not a whole number ")
    assert details.endswith(f" of at most {most}")


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("EPOCHS", "x", "a whole number of at least 1 and of at most 10000"),
        ("EPOCHS", "0", "a whole number of at least 1 and of at most 10000"),
        ("EPOCHS", "10001", "a whole number of at least 1 and of at most 10000"),
        ("EPOCHS", "1.0", "a whole number of at least 1 and of at most 10000"),
        ("SEED", "2147483648", "a whole number of at least 0 and of at most 2147483647"),
        ("LR", "0", "a number greater than 0 and of at most 1000"),
        ("LR", "nan", "a number greater than 0 and of at most 1000"),
        ("LR", "inf", "a number greater than 0 and of at most 1000"),
        ("LR", "1e400", "a number greater than 0 and of at most 1000"),
        ("SHUFFLE", "yes", "true, false, 1 or 0"),
    ],
)
async def test_a_parameter_of_another_type_or_range_is_refused(
    door: Service, name: str, value: str, allowed: str
) -> None:
    details = await door.refuses(door.train({name: value}), INVALID)
    assert details == f"parameters.{name}: {value!r} is not {allowed}"


@pytest.mark.parametrize("value", ["rmsprop", "", "SGD", "😀" * 4000])
async def test_a_parameter_that_is_none_of_the_choices_is_refused(door: Service, value: str) -> None:
    details = await door.refuses(door.train({"OPTIMISER": value}), INVALID)
    assert details == f"parameters.OPTIMISER: {shown(value)} is not allowed; allowed are sgd, adam"


@pytest.mark.parametrize(
    "value", ["a\nb", "a\rb", "\x00", "a\x1b[2J", "\u202eabc", "a\u200bb", "a\u2028b", "\ufeff", "\x7f"]
)
async def test_a_value_with_control_characters_is_refused(door: Service, value: str) -> None:
    details = await door.refuses(door.train({"NOTE": value}), INVALID)
    assert details == (
        f"parameters.NOTE: {value!r} has control characters or line breaks, which are not allowed"
    )


async def test_a_value_that_is_too_long_is_refused(door: Service) -> None:
    details = await door.refuses(door.train({"NOTE": LONG}), INVALID)
    assert details == "parameters.NOTE: has 10000 characters; at most 4096 are allowed"


@pytest.mark.parametrize(
    "name",
    [
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "JOB_ID", "JOB_ATTEMPT"),
        *("ALGORITHM_NAME", "MODEL_NAME", "MODEL_URI", "CHECKPOINT_URI", "METADATA_STORE_SERVER"),
        *("TRAINING_DATA_URI", "TRAINING_ANYTHING", "PET_NNODES", "MINIO_SERVER", "TF_CONFIG"),
        *("PATH", "HOME", "LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV", "TMPDIR"),
        *("AWS_SECRET_ACCESS_KEY", "https_proxy", "HTTPS_PROXY", "NODE_OPTIONS", "GIT_SSH_COMMAND"),
        "MODE_OF_THE_SITE",  # set by this algorithm's configuration
    ],
)
async def test_a_reserved_name_is_refused(door: Service, name: str) -> None:
    details = await door.refuses(door.train({name: "1"}), INVALID)
    assert details == f"parameters.{name}: is a reserved name: it is set by the service"


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "A=B", "A B", "A-B", "A.B", "a/b", "1A", "A\n", "A\x00", "BASH_FUNC_x%%", "${A}", "😀"),
        *("É", "Ａ", "A\u200b", "\u202eKNAR", LONG),  # noqa: RUF001
    ],
)
async def test_a_name_that_no_variable_can_have_is_refused(door: Service, name: str) -> None:
    details = await door.refuses(door.train({name: "1"}), INVALID)
    assert details == (
        f"parameters.{shown(name)[1:-1]}: a parameter's name has letters, digits and _, "
        "no digit first, 128 at most"
    )


@pytest.mark.parametrize("name", ["LR", "epochs", "parallel_instances"])
async def test_a_parameter_that_the_algorithm_does_not_take_is_refused(door: Service, name: str) -> None:
    details = await door.refuses(door.train({name: "1"}, algorithm="strict"), INVALID)
    assert details == (
        f"parameters.{name}: is not a parameter of this algorithm; allowed are EPOCHS, PARALLEL_INSTANCES"
    )


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"NOTE": "x" * 10_000_000}, "has 10000004 bytes in all; at most 65536 are allowed"),
        ({f"P{n}": "x" * 300 for n in range(250)}, "bytes in all; at most 65536 are allowed"),
        ({f"P{n}": "" for n in range(257)}, "has 257 entries; at most 256 are allowed"),
        ({f"P{n}": "1" for n in range(300_000)}, "has 300000 entries; at most 256 are allowed"),
    ],
    ids=["10 MB in one", "75 kB in 250", "257", "300,000"],
)
@pytest.mark.parametrize("request_key", ["", "a key"])
async def test_too_many_parameters_are_refused(
    door: Service, parameters: Mapping[str, str], complaint: str, request_key: str
) -> None:
    details = await door.refuses(door.train(parameters, request_key), INVALID)
    assert details.startswith("parameters: ")
    assert details.endswith(complaint)


async def test_a_message_that_is_too_large_to_be_read_is_refused(door: Service) -> None:
    large = {"NOTE": "x" * (door.settings.server.max_message_bytes + 1)}
    await door.refuses(door.train(large), grpc.StatusCode.RESOURCE_EXHAUSTED)


async def test_a_small_message_that_unpacks_to_a_huge_one_is_refused(door: Service) -> None:
    large = {"NOTE": "x" * (door.settings.server.max_message_bytes + 1)}
    request = pb.TrainRequest(metadata=metadata(large))
    call = door.stub.Train(request, compression=grpc.Compression.Gzip)
    await door.refuses(call, grpc.StatusCode.RESOURCE_EXHAUSTED)


@pytest.mark.parametrize("job_id", [0, 1, -1, 4711, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("method", ["GetTrainingStatus", "CancelTraining"])
async def test_a_job_that_never_was_is_not_found(door: Service, method: str, job_id: int) -> None:
    request = pb.GetTrainingStatusRequest(job_id=job_id).SerializeToString()
    details = await door.refuses(door.call_raw(method, request), NOT_FOUND)
    assert details == f"Job {job_id} doesn't exist"


@pytest.mark.parametrize("job_id", [0, -1, 2**31 - 1])
async def test_there_is_nothing_to_watch_of_a_job_that_never_was(door: Service, job_id: int) -> None:
    watch = door.stub.WatchTraining(pb.WatchTrainingRequest(job_id=job_id))
    assert await door.refuses(anext(aiter(watch)), NOT_FOUND) == f"Job {job_id} doesn't exist"


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("job_id", [0, -1, 2**31 - 1])
async def test_there_are_no_logs_of_a_job_that_never_was(door: Service, job_id: int, follow: bool) -> None:
    logs = door.stub.GetTrainingLogs(pb.GetTrainingLogsRequest(job_id=job_id, follow=follow))
    assert await door.refuses(anext(aiter(logs)), NOT_FOUND) == f"Job {job_id} doesn't exist"


@pytest.mark.parametrize("rank", [-1, 2, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("follow", [False, True])
async def test_a_rank_that_the_job_lacks_is_refused(door: Service, rank: int, follow: bool) -> None:
    job_id = await door.train({"PARALLEL_INSTANCES": "2"})
    logs = door.stub.GetTrainingLogs(pb.GetTrainingLogsRequest(job_id=job_id, rank=rank, follow=follow))
    details = await door.refuses(anext(aiter(logs)), INVALID)
    assert details == f"rank: {rank} is not a rank of job 1: it has 0 to 1"


async def test_negative_tail_lines_are_refused(door: Service) -> None:
    request = pb.GetTrainingLogsRequest(job_id=await door.train(), tail_lines=-1)
    details = await door.refuses(anext(aiter(door.stub.GetTrainingLogs(request))), INVALID)
    assert details == "tail_lines: -1 is negative"


@pytest.mark.parametrize("size", [-1, 1001, 2**31 - 1])
async def test_a_page_size_out_of_range_is_refused(door: Service, size: int) -> None:
    call = door.stub.ListTrainingJobs(pb.ListTrainingJobsRequest(page_size=size))
    assert await door.refuses(call, INVALID) == f"page_size: {size} is not from 0 to 1000"


@pytest.mark.parametrize("token", ["x", "-1", "1.5", " 1", "1\n", "٣", "0x1", "1; DROP TABLE jobs", LONG])
async def test_a_page_token_that_is_none_is_refused(door: Service, token: str) -> None:
    call = door.stub.ListTrainingJobs(pb.ListTrainingJobsRequest(page_token=token))
    details = await door.refuses(call, INVALID)
    assert details == f"page_token: {shown(token)} is not the next_page_token of an earlier page"


@pytest.mark.parametrize("token", ["0", "1", "9" * 19, "9" * 10_000])
async def test_a_page_token_of_digits_never_breaks_anything(door: Service, token: str) -> None:
    await door.stub.ListTrainingJobs(pb.ListTrainingJobsRequest(page_token=token))


@pytest.mark.parametrize("number", [6, 99, -1, 2**31 - 1])
async def test_a_status_that_is_none_is_refused(door: Service, number: int) -> None:
    # Through bytes: Python's own protobuf would not let such a number in by its name.
    request = pb.ListTrainingJobsRequest()
    request.MergeFromString(b"\x0a" + packed(varint(number)))
    details = await door.refuses(door.stub.ListTrainingJobs(request), INVALID)
    assert details == (
        f"statuses: {number} is not a TrainingStatus; "
        "there are queuing, launch, running, succeed, failure, cancelled (0 to 5)"
    )


@pytest.mark.parametrize("key", ["x" * 129, LONG, "a\nb", "\x00", "\u202e", "a\u200bb"])
async def test_a_request_key_that_is_too_long_or_not_printable_is_refused(door: Service, key: str) -> None:
    details = await door.refuses(door.train(request_key=key), INVALID)
    assert details == (
        f"request_key: {shown(key)} is not allowed: it has at most 128 characters, all of them printable"
    )


@pytest.mark.parametrize(
    "data",
    [b"\xff", b"no protobuf", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x05\x0a\x03\xff\xfe\xfd", b"\x00" * 64],
)
@pytest.mark.parametrize("method", METHODS)
async def test_bytes_that_are_no_message_are_the_clients_fault(
    door: Service, method: str, data: bytes
) -> None:
    if method != "Train" and data.startswith(b"\x0a\x05"):
        pytest.skip("only the fields of Train are texts in a message")
    details = await door.refuses(door.call_raw(method, data), INVALID)
    assert details == f"the request is not a valid message for /training.TrainingService/{method}"


@pytest.mark.parametrize("method", STREAMS)
async def test_bytes_that_are_no_message_for_a_stream_are_the_clients_fault(
    door: Service, method: str
) -> None:
    stream = door.channel.unary_stream(f"/training.TrainingService/{method}")
    details = await door.refuses(anext(aiter(stream(b"\xff\xff"))), INVALID)
    assert details == f"the request is not a valid message for /training.TrainingService/{method}"


async def test_a_call_that_does_not_exist_is_unimplemented(door: Service) -> None:
    await door.refuses(door.call_raw("Untrain", b""), grpc.StatusCode.UNIMPLEMENTED)


async def test_a_full_queue_refuses_more_saying_how_many_wait(serve: Serve) -> None:
    service = await serve(tracked=False, scheduling={"max_queued": 2})
    for _ in range(2):
        await service.train()
    details = await service.refuses(service.train(), grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert details.startswith("2 jobs are queued, which is the limit (")


async def test_a_message_that_lists_thousands_of_algorithms_still_arrives(serve: Serve) -> None:
    many = {f"algorithm-number-{number:05}": {} for number in range(2000)}
    service = await serve(tracked=False, algorithms=many)
    details = await service.refuses(service.train(algorithm="nope"), NOT_FOUND)
    assert details.startswith("algorithm: 'nope' doesn't exist; configured are: algorithm-number-00000, ")


async def test_the_service_goes_on_after_every_kind_of_nonsense(service: Service) -> None:
    nonsense = [b"\xff" * size for size in (1, 1000, 100_000)]
    calls = [service.call_raw(method, data) for method in METHODS for data in nonsense]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {getattr(answer, "code", str)() for answer in answers} == {INVALID}
    await service.seen(await service.train(), pb.succeed)


def shown(text: str) -> str:
    """How a message quotes what it was sent: escaped, and not without end."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def varint(number: int) -> bytes:
    """As protobuf writes a number."""
    number &= 2**64 - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def packed(data: bytes) -> bytes:
    """Data with its length before it."""
    return varint(len(data)) + data


def test_the_helper_writes_numbers_as_protobuf_does() -> None:
    message = pb.GetTrainingStatusRequest(job_id=-1).SerializeToString()
    assert message == b"\x08" + varint(-1)
    assert json.dumps(list(packed(b"ab"))) == "[2, 97, 98]"
