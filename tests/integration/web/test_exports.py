"""Exports: series as a table, and as files for TensorBoard."""

import io
import zipfile

import pytest

from tests.support.access import Entry, bearer
from tests.support.api_service import metadata
from tests.support.jobs import NOON
from tests.support.web_site import Browser, Site, measured
from training_service._generated import training_service_pb2 as pb


async def test_series_of_several_jobs_are_a_table(site: Site, browser: Browser) -> None:
    await measured(site, "first", loss=[1.0, float("nan")], **{"=lr": [0.5]})
    await measured(site, "second", loss=[2.0])
    answer = await browser.get("/series.csv?job=1&job=2")
    at = NOON.isoformat()
    assert answer.text.split("\r\n") == [
        "job,metric,attempt,step,time,value",
        f"1,'=lr,1,0,{at},0.5",
        f"1,loss,1,0,{at},1.0",
        f"1,loss,1,1,{at},nan",
        f"2,loss,1,0,{at},2.0",
        "",
    ]
    assert answer.headers["content-disposition"] == 'attachment; filename="jobs-1-and-1-more.csv"'


@pytest.mark.parametrize(
    ("query", "names"), [("name=loss", {"loss"}), ("find=L", {"loss", "val"}), ("", None)]
)
async def test_some_series_can_be_chosen(
    site: Site, browser: Browser, query: str, names: set[str] | None
) -> None:
    await measured(site, "first", loss=[1.0], acc=[2.0], val=[3.0])
    text = await browser.page(f"/series.csv?job=1&{query}")
    assert {line.split(",")[1] for line in text.splitlines()[1:]} == (names or {"loss", "acc", "val"})


async def test_each_job_is_a_run_in_the_archive_for_tensorboard(site: Site, browser: Browser) -> None:
    await measured(site, "A first.Name", loss=[1.0, 0.5])
    await measured(site, "second", loss=[2.0])
    answer = await browser.get("/series.zip?job=1,2")
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        runs = [name.partition("/")[0] for name in archive.namelist()]
        assert runs[0].startswith("1-a-first-name-")
        assert runs[1] == "2-second"
        assert all("tfevents" in name for name in archive.namelist())
        assert b"brain.Event:2" in archive.read(archive.namelist()[0])[:60]


@pytest.mark.parametrize("file", ["series.csv", "series.zip"])
@pytest.mark.parametrize(("query", "status"), [("", 400), ("job=x", 400), ("job=9", 404)])
async def test_a_bad_choice_of_jobs_is_named(browser: Browser, file: str, query: str, status: int) -> None:
    await browser.page(f"/{file}?{query}", status)


async def test_series_of_other_projects_do_not_exist(closed: Site) -> None:
    entry, browser = Entry(closed.service), closed.browser()
    await entry.project("vision", alice="viewer")
    await entry.project("speech", bob="submitter")
    sent = [*bearer((await entry.token("bob")).text), ("x-project", "speech")]
    await closed.service.stub.Train(pb.TrainRequest(metadata=metadata()), metadata=sent)
    await browser.log_in((await entry.token("alice")).text)
    for file in ("series.csv", "series.zip"):
        assert "exist" in await browser.page(f"/{file}?job=1", 404)


async def test_the_pages_of_curves_lead_to_them(site: Site, browser: Browser) -> None:
    await measured(site, "first", loss=[1.0])
    for page in ("/jobs/1/curves", "/compare?job=1"):
        text = await browser.page(page)
        assert 'href="/series.csv?job=1"' in text
        assert 'href="/series.zip?job=1"' in text
