"""Algorithms and datasets over the wire: declared, used, changed, removed, and listed in pages."""

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from tests.support.api_service import ALGORITHMS, Serve, Service
from training_service._generated import catalog_service_pb2 as cpb
from training_service._generated import training_service_pb2 as pb
from training_service._generated.catalog_service_pb2_grpc import CatalogServiceStub
from training_service.client import AsyncTrainingClient, InvalidRequest, NotFound
from training_service.client.cli.app import app

DEFINITION: dict[str, Any] = {
    "framework": "pytorch",
    "description": "mine",
    "version": "3f2a",
    "dataset": False,
    "parameters": {
        "RUN_SECONDS": {"choices": ["0", "forever"], "default": "0"},
        "LR": {"type": "float", "exclusive_minimum": 0, "maximum": 1, "description": "learning rate"},
    },
}


@pytest.fixture
async def service(serve: Serve) -> Service:
    return await serve(projects={"vision": {}})


def client_of(service: Service) -> AsyncTrainingClient:
    return AsyncTrainingClient(service.address)


async def test_a_declared_algorithm_runs_and_is_shown_with_its_version(service: Service) -> None:
    async with client_of(service) as client:
        made = await client.catalog.set_algorithm("own", DEFINITION)
        assert (made.source.origin, made.source.version, made.code_version) == ("api", 1, "3f2a")
        assert json.loads(made.source.definition) == DEFINITION
        [rate] = [each for each in made.parameters if each.name == "LR"]
        assert (rate.type, rate.exclusive_minimum, rate.maximum) == ("float", 0, 1)
        assert not rate.HasField("default")
        job = await client.submit("own", "", "")
        assert (await service.seen(job, pb.succeed)).algorithm_version == 1
        assert (await service.status(await service.train())).algorithm_version == 0


async def test_a_job_keeps_what_it_was_accepted_with(service: Service) -> None:
    async with client_of(service) as client:
        await client.catalog.set_algorithm("own", DEFINITION)
        first = await service.train({"RUN_SECONDS": "forever", "PARALLEL_INSTANCES": "8"})
        waiting = await client.submit("own", "", "")
        changed = {**DEFINITION, "framework": "jax", "parameters": {}}
        assert (await client.catalog.set_algorithm("own", changed)).source.version == 2
        later = await client.submit("own", "", "")
        with pytest.raises(InvalidRequest, match="no such parameter"):
            await client.submit("own", "", "", parameters={"LR": "0.1"})
        await client.catalog.remove_algorithm("own")
        with pytest.raises(NotFound, match="'own' doesn't exist; configured: program, strict"):
            await client.submit("own", "", "")
        await client.cancel(first)
        for job, version, framework in ((waiting, 1, "pytorch"), (later, 2, "jax")):
            assert (await service.seen(job, pb.succeed)).algorithm_version == version
            kept = (await service.store.get(job)).spec
            assert (kept.group.framework, kept.algorithm_version) == (framework, version)


async def test_a_declared_dataset_is_found(service: Service) -> None:
    uri = f"{service.settings.storage.root}/versionedDatasets/1/{{version}}"
    async with client_of(service) as client:
        with pytest.raises(NotFound, match="'own' doesn't exist; configured: 1"):
            await client.submit("program", "own", "v1")
        made = await client.catalog.set_dataset("own", {"uri": uri}, project="vision")
        assert (made.uri, list(made.files)) == (uri, ["examples.csv", "labels.csv"])
        with pytest.raises(NotFound, match="'own' doesn't exist"):
            await client.submit("program", "own", "v1")
    async with AsyncTrainingClient(service.address, project="vision") as client:
        status = await service.status(await client.submit("program", "own", "v1"))
        assert (status.dataset_declaration, status.algorithm_version) == (1, 0)


async def test_an_unknown_name_is_answered_with_similar_ones_but_not_of_another_project(
    service: Service,
) -> None:
    uri = f"{service.settings.storage.root}/versionedDatasets/1/{{version}}"
    async with client_of(service) as client:
        await client.catalog.set_algorithm("of-vision", DEFINITION, project="vision")
        await client.catalog.set_dataset("pictures", {"uri": uri}, project="vision")
        for call in (client.submit("of-visio", "", ""), client.submit("program", "picture", "v1")):
            with pytest.raises(NotFound, match="doesn't exist; configured: ") as caught:
                await call
            assert "of-vision" not in str(caught.value)
            assert "pictures" not in str(caught.value)
    async with AsyncTrainingClient(service.address, project="vision") as client:
        with pytest.raises(NotFound, match="configured: of-vision, program, strict; to add one: "):
            await client.submit("of-visio", "", "")
        with pytest.raises(NotFound, match="configured: pictures, 1; to add one: "):
            await client.submit("program", "picture", "v1")


async def test_lists_come_in_pages_with_the_origin_of_each(service: Service) -> None:
    async with client_of(service) as client:
        await client.catalog.set_algorithm("of-vision", DEFINITION, project="vision")
        await client.catalog.set_algorithm("z", DEFINITION)
        assert [each.name async for each in client.catalog.algorithms()] == ["program", "strict", "z"]
        found = [each async for each in client.catalog.algorithms("vision")]
        assert [(each.name, each.source.origin, each.source.project) for each in found] == [
            ("of-vision", "api", "vision"),
            *((name, "file", "") for name in ALGORITHMS),
            ("z", "api", ""),
        ]
    stub: Any = CatalogServiceStub(service.channel)
    names, token = [], ""
    while True:
        request = cpb.ListAlgorithmsRequest(project="vision", page_size=3, page_token=token)
        page = await stub.ListAlgorithms(request)
        names.append([each.name for each in page.algorithms])
        token = page.next_page_token
        if not token:
            break
    assert names == [["of-vision", "program", "strict"], ["z"]]


@pytest.mark.parametrize(
    ("call", "fields", "message"),
    [
        ("ListAlgorithms", {"page_size": 1001}, "page_size: 1001 is not allowed; allowed: 0 to 1000"),
        ("SetAlgorithm", {"name": "a b", "definition": "{}"}, "name: 'a b' is not allowed"),
        ("SetAlgorithm", {"name": "a", "definition": "{"}, "definition: it is not a JSON object"),
        ("SetAlgorithm", {"name": "a", "definition": '{"check": ["x"]}'}, "definition.check: not allowed"),
        ("SetAlgorithm", {"name": "a", "definition": '{"x\x1b": 1}'}, "definition: "),
        (
            "SetDataset",
            {"name": "a", "definition": '{"uri": "/etc"}'},
            "definition.uri: '/etc' is",
        ),
    ],
)
async def test_a_bad_request_names_the_field(
    service: Service, call: str, fields: dict[str, Any], message: str
) -> None:
    stub: Any = CatalogServiceStub(service.channel)
    request = getattr(cpb, f"{call}Request")(**fields)
    details = await service.refuses(getattr(stub, call)(request), grpc.StatusCode.INVALID_ARGUMENT)
    assert details.startswith(message)


async def test_a_service_for_everyone_takes_no_algorithms(serve: Serve) -> None:
    service = await serve(tracked=False, server={"address": "0.0.0.0:0", "insecure": True})
    stub: Any = CatalogServiceStub(service.channel)
    request = cpb.SetAlgorithmRequest(name="a", definition="{}")
    details = await service.refuses(stub.SetAlgorithm(request), grpc.StatusCode.PERMISSION_DENIED)
    assert details.startswith(
        "this service accepts no algorithms through the API, since callers need not prove"
    )


async def test_trainctl_lists_declares_and_removes(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"

    async def trainctl(*arguments: str, code: int = 0) -> str:
        command = ["--address", service.address, *arguments]
        ended = await asyncio.to_thread(CliRunner().invoke, app, command)
        assert ended.exit_code == code, ended.output
        return ended.output

    file.write_text(
        '[algorithms.own]\ndescription = "a\\nb"\ndataset = false\n'
        'parameters.LR = { type = "float", default = "0.1", minimum = 0, maximum = 1 }\n'
        "[algorithms.second]\n"
    )
    assert (await trainctl("algorithm", "set", str(file), "--quiet")).splitlines() == ["own", "second"]
    assert "own\tapi\t-\t1\tpytorch\tLR\ta?b" in (await trainctl("algorithms")).replace("\\n", "?")
    assert await trainctl("algorithms", "own") == "LR\tfloat\t0.1\t≥ 0, ≤ 1\t-\n"
    assert json.loads(await trainctl("--json", "algorithms", "own"))["source"]["version"] == "1"
    assert "removed algorithm own" in await trainctl("algorithm", "rm", "own")
    assert "'own' is not declared" in await trainctl("algorithm", "rm", "own", code=3)

    file.write_text('[algorithms.a]\n[algorithms.b]\ncheck = ["x"]\n')
    assert "algorithms.b: definition.check: not" in await trainctl("algorithm", "set", str(file), code=2)
    assert "a\tapi\t-\t4\t" in await trainctl("algorithms"), "what was before the error is declared"

    uri = f"{service.settings.storage.root}/versionedDatasets/x/{{version}}"
    file.write_text(f'[datasets.x]\nuri = "{uri}"\nfiles = []\n')
    await trainctl("--project", "vision", "dataset", "set", str(file))
    assert await trainctl("--project", "vision", "datasets", "x") == f"x\tapi\tvision\t5\t{uri}\t-\n"
    await trainctl("--project", "vision", "dataset", "rm", "x")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = [", "not valid TOML"),
        ("", "has no table algorithms.NAME"),
        ("algorithms = 1", "has no table algorithms.NAME"),
        ("[algorithms.a]\n[server]\n", "server: not allowed; allowed: tables algorithms.NAME"),
        ("[algorithms]\na.x = 2026-01-01\n", "it cannot be written as JSON"),
    ],
)
def test_trainctl_refuses_a_file_that_it_cannot_use(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(content)
    ended = CliRunner().invoke(app, ["--address", "127.0.0.1:1", "algorithm", "set", str(file)])
    assert ended.exit_code != 0
    assert message in ended.output
