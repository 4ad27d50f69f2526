"""Uploads of programs, and jobs that run them, on a real server with a real store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from job_tracker.domain.errors import StorageUnavailable
from job_tracker.trees.operations import Programs
from job_tracker.trees.uploads import Upload
from tests.support.access import LOST_BY_THE_CLIENT, Entry, failure
from tests.support.api_service import Serve, Service, metadata
from tests.support.catalog import algorithm_of
from tests.support.trees import FILES, line, manifest_of, sha256_of
from tests.support.uploader import TREE, Uploader
from training_service._generated import program_service_pb2 as pb
from training_service._generated import training_service_pb2 as tpb
from training_service._generated.program_service_pb2_grpc import ProgramServiceStub
from training_service.client import AsyncTrainingClient, InvalidRequest, TrainingClient
from training_service.client.run.working_tree import read_folder


@pytest.fixture
async def uploader(untracked: Service) -> Uploader:
    return Uploader(untracked)


async def test_a_tree_is_put_uploaded_found_and_run(uploader: Uploader) -> None:
    assert not (await uploader.find()).is_known
    status = await uploader.put()
    assert status.is_known
    assert {each.sha256 for each in status.missing} == {sha256_of(content) for content in FILES.values()}
    assert not (await uploader.upload(FILES.values())).missing
    assert (await uploader.find()) == pb.TreeStatus(tree=TREE, is_known=True)
    job_id = (await uploader.run(environment={"MODE": "fast"}, version="3f2a-dirty")).job_id
    shown = await uploader.service.status(job_id)
    assert (shown.metadata.algorithm, shown.metadata.name, shown.metadata.dataset_id) == (
        "program",
        "program",
        "",
    )
    kept = (await uploader.service.store.get(job_id)).spec
    assert kept.program is not None
    assert (kept.program.tree, kept.program.environment) == (TREE, {"MODE": "fast"})
    assert kept.group.trainers.command == ("python", "train.py")


async def test_a_page_of_jobs_leaves_out_their_programs(uploader: Uploader) -> None:
    await uploader.whole()
    job_id = (await uploader.run(command=["python", "-c", "#" * 60_000])).job_id
    assert (await uploader.service.status(job_id)).program.tree == TREE
    page = await uploader.service.stub.ListTrainingJobs(tpb.ListTrainingJobsRequest())
    assert [(job.job_id, job.HasField("program")) for job in page.jobs] == [(job_id, False)]


async def test_the_audit_says_which_program_was_submitted(uploader: Uploader) -> None:
    await uploader.whole()
    await uploader.run()
    [event] = await uploader.service.store.events_after(0, 10)
    assert (event.action, event.target, event.detail) == ("submit", "job 1", f"uploaded program {TREE}")


async def test_the_provenance_is_a_request_for_the_same_job(uploader: Uploader) -> None:
    await uploader.whole()
    asked: dict[str, Any] = {
        "command": ["python", "-c", "print('1\n2')"],
        "environment": {"MODE": "fast"},
        "version": "3f2a",
    }
    job_id = (await uploader.run(**asked, parameters={"PARALLEL_INSTANCES": "2"})).job_id
    found = await uploader.service.stub.GetTrainingArtifacts(tpb.GetTrainingArtifactsRequest(job_id=job_id))
    request = found.provenance.request
    assert request.program == tpb.Program(tree=TREE, framework="pytorch", **asked)
    assert found.provenance.code_version == "3f2a"
    again = (await uploader.service.stub.Train(request)).job_id
    one, other = [(await uploader.service.store.get(each)).spec for each in (job_id, again)]
    assert one.group == other.group
    assert one.program == other.program


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tree": "b" * 64}, "program.tree: bbb"),
        ({"tree": "../../etc"}, "tree: it must be 64"),
        ({"command": []}, "program.command: must not be empty"),
        ({"command": [""]}, "program.command: must not be empty"),
        ({"command": ["python", "a\0b"]}, "program.command: 'a\\x00b' is not allowed"),
        ({"command": ["python", "\x1b[31m"]}, "program.command: '\\x1b[31m' is not allowed"),
        ({"command": ["x"] * 1025}, "program.command: has 1025 arguments"),
        ({"command": ["x" * 65537]}, "program.command: has 65537 bytes"),
        ({"framework": "torch"}, "program.framework: 'torch' is not a framework"),
        ({"environment": {"LD_PRELOAD": "x"}}, "program.environment.LD_PRELOAD: the name is reserved"),
        ({"environment": {"RANK": "0"}}, "program.environment.RANK: the name is reserved"),
        ({"environment": {"PARALLEL_INSTANCES": "2"}}, "program.environment.PARALLEL_INSTANCES: the name"),
        ({"environment": {"a b": "x"}}, "program.environment.a b: the name is not allowed"),
        ({"environment": {"A": "\0"}}, "program.environment.A"),
        ({"environment": {f"A{n}": "" for n in range(257)}}, "program.environment: has 257 entries"),
        ({"version": "x" * 257}, "program.version"),
        ({"requirements": "requirements.txt"}, "program.requirements: not allowed: this backend"),
        ({"python_environment": "team"}, "program.python_environment: not allowed: this backend"),
        ({"image": "team:1"}, "program.image: 'team:1' is not allowed: this backend"),
        ({"image": "x", "python_environment": "y"}, "program.image: not allowed together"),
        (
            {"requirements": "x", "python_environment": "y"},
            "program.python_environment: not allowed together",
        ),
        ({"parameters": {"LR": "1"}}, "parameters.LR: the algorithm has no such parameter"),
        ({"parameters": {"PARALLEL_INSTANCES": "9"}}, "parameters.PARALLEL_INSTANCES"),
    ],
)
async def test_a_request_that_is_not_allowed_names_the_field(
    uploader: Uploader, changes: dict[str, Any], message: str
) -> None:
    await uploader.whole()
    code, details = await failure(uploader.run(**{"tree": TREE, **changes}))
    assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
    assert message in details
    assert details.isprintable()


async def test_an_incomplete_tree_is_not_run(uploader: Uploader) -> None:
    await uploader.put()
    code, details = await failure(uploader.run())
    assert (code, f"program.tree: {TREE} is not complete" in details) == (grpc.StatusCode.NOT_FOUND, True)


async def test_only_a_program_or_its_algorithm_goes_without_a_dataset(serve: Serve) -> None:
    algorithms = {"program": algorithm_of(), "alone": algorithm_of(dataset=False)}
    service = await serve(tracked=False, algorithms=algorithms)
    assert await service.train(algorithm="alone", dataset_id="", train_data_version_hash="") == 1
    assert await service.train(algorithm="alone") == 2
    for algorithm in ("program", "alone"):
        request = tpb.TrainRequest(metadata=metadata(algorithm=algorithm, dataset_id=""))
        code, details = await failure(service.stub.Train(request))
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert details.startswith("dataset_id: must not be empty; give a dataset and its version")


async def test_a_program_may_have_a_dataset_and_no_algorithm(uploader: Uploader) -> None:
    await uploader.whole()
    program = tpb.Program(tree=TREE, command=["python", "train.py"])
    request = tpb.TrainRequest(metadata=metadata(), program=program)
    job = await uploader.service.store.get((await uploader.service.stub.Train(request)).job_id)
    assert job.spec.data_uri.endswith("/versionedDatasets/1/v1")
    request.metadata.algorithm = "strict"
    code, details = await failure(uploader.service.stub.Train(request))
    assert (code, details) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "algorithm: 'strict' is not allowed with a program; leave it out",
    )


async def test_an_upload_that_was_cut_continues(uploader: Uploader) -> None:
    content = b"x" * 300_000
    tree, text = manifest_of({"model.bin": content})
    await uploader.put(text, tree)
    half = pb.Piece(sha256=sha256_of(content), content=content[:200_000])
    written = asyncio.Event()

    async def cut() -> AsyncIterator[pb.UploadFilesRequest]:
        yield pb.UploadFilesRequest(tree=tree, pieces=[half])
        await written.wait()

    call = uploader.stub.UploadFiles(cut())
    while (await uploader.find(tree)).missing[0].received < 200_000:  # a write may be seen in parts
        await asyncio.sleep(0.01)
    call.cancel()
    written.set()
    assert (await uploader.find(tree)).missing[0].received == 200_000
    rest = pb.Piece(sha256=sha256_of(content), offset=200_000, content=content[200_000:])
    status = await uploader.stub.UploadFiles([pb.UploadFilesRequest(tree=tree, pieces=[rest])])
    assert status == pb.TreeStatus(tree=tree, is_known=True)


async def test_two_uploads_of_one_tree_at_a_time_are_harmless(uploader: Uploader) -> None:
    files = {f"{n}.bin": bytes([n]) * 50_000 for n in range(20)}
    trees = await asyncio.gather(*(uploader.whole(files) for _ in range(4)))
    assert len(set(trees)) == 1
    assert (await uploader.run(trees[0])).job_id == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (line("../x"), "manifest: the path '../x' is not allowed"),
        (b"nonsense", "manifest: "),
        (line("A") + line("a"), "manifest: 'A' and 'a' differ only in case"),
        (b"x" * (4096 + 256 * 10_000 + 1), "manifest: it has more than"),
    ],
)
async def test_a_manifest_that_is_not_allowed_is_refused(
    uploader: Uploader, text: bytes, message: str
) -> None:
    code, details = await failure(uploader.put(text, sha256_of(text), piece=200_000))
    assert (code, message in details) == (grpc.StatusCode.INVALID_ARGUMENT, True), details


async def test_contents_that_do_not_belong_there_are_refused(uploader: Uploader) -> None:
    await uploader.put()
    code, details = await failure(uploader.upload([b"foreign"]))
    assert (code, "pieces.sha256" in details) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    lie = pb.Piece(sha256=sha256_of(FILES["train.py"]), content=b"print('evil!')\n")
    code, details = await failure(uploader.stub.UploadFiles([pb.UploadFilesRequest(tree=TREE, pieces=[lie])]))
    assert (code, "may have changed while it was read" in details) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    large = pb.Piece(sha256=sha256_of(FILES["train.py"]), content=b"x" * 300_000)
    code, details = await failure(
        uploader.stub.UploadFiles([pb.UploadFilesRequest(tree=TREE, pieces=[large])])
    )
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details.endswith("at most 262144 are allowed; send the content in more messages")
    for nothing in ([], [pb.UploadFilesRequest()]):
        code, _ = await failure(uploader.stub.UploadFiles(nothing))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert len((await uploader.find()).missing) == len(FILES)


async def test_bytes_that_are_no_message_are_refused(uploader: Uploader) -> None:
    call: Any = uploader.service.channel.stream_unary("/training.ProgramService/UploadFiles")
    code, details = await failure(call([b"\xff\xff"]))
    assert (code, "not a valid message" in details) == (grpc.StatusCode.INVALID_ARGUMENT, True)


async def test_a_caller_is_identified_before_its_first_message(serve: Serve) -> None:
    service = await serve(tracked=False, auth={"loopback": "token"})
    asked = asyncio.Event()

    async def never() -> AsyncIterator[pb.UploadFilesRequest]:
        await asked.wait()
        yield pb.UploadFilesRequest(tree=TREE)

    code, _ = await failure(ProgramServiceStub(service.channel).UploadFiles(never()))
    asked.set()
    assert code is grpc.StatusCode.UNAUTHENTICATED


async def test_a_tree_of_another_project_is_not_found(serve: Serve) -> None:
    service = await serve(tracked=False, auth={"loopback": "token"})
    entry = Entry(service)
    for project in ("vision", "speech"):
        await entry.project(project)
    owner, other = [
        Uploader(service, [*entry.operator, ("x-project", project)]) for project in ("vision", "speech")
    ]
    await owner.whole()
    assert not (await other.find()).is_known
    assert len((await other.put()).missing) == len(FILES)
    code, details = await failure(other.run())
    assert (code, "in project speech" in details) == (grpc.StatusCode.NOT_FOUND, True)
    assert (await owner.run()).job_id == 1


async def test_one_setting_turns_programs_off(serve: Serve) -> None:
    service = await serve(tracked=False, programs={"enabled": False})
    uploader = Uploader(service)
    calls: list[Callable[[], Any]] = [uploader.find, uploader.put, lambda: uploader.upload([]), uploader.run]
    for call in calls:
        code, details = await failure(call())
        while details == LOST_BY_THE_CLIENT:
            code, details = await failure(call())
        assert (code, "programs.enabled" in details) == (grpc.StatusCode.PERMISSION_DENIED, True), details
    assert not (service.settings.storage.data_dir / "programs").exists()


async def test_a_repeated_request_gets_its_job_without_its_tree(uploader: Uploader, tmp_path: Path) -> None:
    await uploader.whole()
    program = tpb.Program(tree=TREE, command=["python", "train.py"])
    request = tpb.TrainRequest(program=program, request_key="monday")
    first = await uploader.service.stub.Train(request)
    (tmp_path / "programs" / "default" / "trees" / TREE).unlink()
    assert await uploader.service.stub.Train(request) == first
    request.program.command.append("--lr")
    code, _ = await failure(uploader.service.stub.Train(request))
    assert code is grpc.StatusCode.ALREADY_EXISTS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print()")
    (folder / "model.bin").write_bytes(b"x" * 1_000_000)
    for number in range(50):
        (folder / f"{number}.txt").write_text(str(number))
    return folder


Run = Callable[..., Awaitable[int]]


@pytest.fixture(params=["asyncio", "plain"])
async def run(request: pytest.FixtureRequest, untracked: Service) -> AsyncIterator[Run]:
    """Runs a program with one of the clients."""
    if request.param == "asyncio":
        async with AsyncTrainingClient(untracked.address) as client:
            yield client.run
        return
    with TrainingClient(untracked.address) as plain:
        yield lambda *arguments, **options: asyncio.to_thread(plain.run, *arguments, **options)


async def test_the_clients_upload_a_folder_and_submit_its_program(
    run: Run, untracked: Service, folder: Path
) -> None:
    shown: list[tuple[int, int]] = []

    def show(sent: int, total: int) -> None:
        shown.append((sent, total))

    assert await run(["python", "train.py"], folder=folder, instances=2, on_progress=show) == 1
    spec = (await untracked.store.get(1)).spec
    assert (spec.group.size, spec.group.trainers.command) == (2, ("python", "train.py"))
    assert shown[-1] == (1_000_097, 1_000_097)
    shown.clear()
    (folder / "train.py").write_text("print(1)")
    assert await run(["python", "train.py"], folder=folder, on_progress=show) == 2
    assert shown == [(8, 8)], "only the file that was changed is sent"
    assert await run(["python", "train.py"], folder=folder, on_progress=show) == 3
    assert shown == [(8, 8)], "nothing is sent for the same files"


async def test_an_unchanged_folder_sends_only_the_name_of_its_tree(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await run(["python", "train.py"], folder=folder) == 1
    calls: list[str] = []

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def count(*given: Any) -> Any:
            calls.append(name)
            return call(*given)

        return count

    for name in ("find_tree", "put_manifest", "upload_files"):
        monkeypatch.setattr(Programs, name, counted(name, getattr(Programs, name)))
    assert await run(["python", "train.py"], folder=folder) == 2
    assert calls == ["find_tree"]


async def test_a_client_continues_an_upload_that_was_cut_and_sends_nothing_twice(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written, cuts = Upload.write, [0], [3, 2]

    def cut(upload: Upload, sha256: str, offset: int, content: bytes) -> None:
        if len(content) > 100_000 and cuts:
            cuts[0] -= 1
            if not cuts[0]:
                cuts.pop(0)
                raise StorageUnavailable("as if the connection broke")
        write(upload, sha256, offset, content)
        written[0] += len(content)

    monkeypatch.setattr(Upload, "write", cut)
    assert await run(["python", "train.py"], folder=folder) == 1
    assert not cuts
    assert written[0] == sum(path.stat().st_size for path in folder.iterdir())


async def test_a_file_that_changes_while_it_is_sent_is_named(run: Run, folder: Path) -> None:
    files = read_folder(folder)
    (folder / "train.py").write_text("PRINT()")
    with pytest.raises(InvalidRequest, match=r"train\.py changed while the files were sent"):
        await run(["python", "train.py"], folder=files)
    assert await run(["python", "train.py"], folder=folder) == 1


async def test_a_command_in_one_text_is_refused_before_files_are_sent(run: Run, folder: Path) -> None:
    shown: list[tuple[int, int]] = []
    with pytest.raises(InvalidRequest, match=r"^command: 'python train\.py' is one string"):
        await run("python train.py", folder=folder, on_progress=lambda *sizes: shown.append(sizes))
    assert not shown
