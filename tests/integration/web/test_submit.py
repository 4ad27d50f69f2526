"""The form that submits jobs: its fields, its errors, and the same request as commands."""

import re
import shlex

import pytest
from google.protobuf.duration_pb2 import Duration

from job_tracker.catalog import Parameter
from tests.support.access import Entry
from tests.support.api_service import ALGORITHMS, metadata
from tests.support.catalog import algorithm_of
from tests.support.web_site import Browser, Site, Visit
from training_service._generated import training_service_pb2 as pb

FIELDS = {"algorithm": "program", "project": "default", "dataset_id": "1", "dataset_version": "v1"}


async def key(browser: Browser, algorithm: str = "program") -> str:
    found = re.search(r'name="key" value="([^"]+)"', await browser.page(f"/submit?algorithm={algorithm}"))
    assert found is not None
    return found[1]


async def test_a_form_has_the_parameters_of_its_algorithm(browser: Browser) -> None:
    assert "EPOCHS" not in await browser.page("/submit")
    text = await browser.page("/submit?algorithm=program")
    assert 'name="parameters.EPOCHS"' in text
    assert 'placeholder="15"' in text
    assert "Allowed: 1 to 10\u202f000." in text
    assert '<select name="parameters.OPTIMISER">' in text
    assert '<select name="parameters.SHUFFLE">' in text
    assert 'name="dataset_id"' in text


async def test_a_filled_form_is_a_job(site: Site, browser: Browser) -> None:
    fields = {**FIELDS, "name": "mine", "tags": "red, blue", "parameters.EPOCHS": "3", "parameters.LR": ""}
    answer = await browser.post("/submit", {**fields, "key": await key(browser)})
    assert answer.headers["location"] == "/jobs/1"
    job = await site.service.store.get(1)
    assert job.spec.name == "mine"
    assert job.spec.parameters == {"EPOCHS": "3"}
    assert job.tags == ("blue", "red")
    assert job.spec.submitted_by == "operator"


async def test_a_form_that_is_sent_twice_is_one_job(site: Site, browser: Browser) -> None:
    fields = {**FIELDS, "key": await key(browser)}
    for _ in range(2):
        assert (await browser.post("/submit", fields)).headers["location"] == "/jobs/1"
    answer = await browser.post("/submit", {**fields, "name": "changed"})
    assert answer.status_code == 400
    assert "already submitted as job 1" in answer.text
    [again] = re.findall(r'name="key" value="([^"]+)"', answer.text)
    answer = await browser.post("/submit", {**fields, "name": "changed", "key": again})
    assert answer.headers["location"] == "/jobs/2"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"parameters.EPOCHS": "0"}, "parameters.EPOCHS"),
        ({"parameters.LR": "<b>"}, "parameters.LR"),
        ({"parameters.OPTIMISER": "none"}, "parameters.OPTIMISER"),
        ({"name": "<b>"}, "name"),
        ({"instances": "x"}, "instances"),
        ({"dataset_id": "no"}, "dataset_id"),
        ({"dataset_version": "no"}, "dataset_version"),
        ({"tags": "<b>"}, "tags"),
    ],
)
async def test_an_error_is_beside_its_field_and_what_was_written_stays(
    browser: Browser, change: dict[str, str], field: str
) -> None:
    answer = await browser.post("/submit", {**FIELDS, "name": "mine", **change})
    assert answer.status_code == 400
    assert f'id="problem-{field}"' in answer.text
    assert f'aria-describedby="problem-{field}"' in answer.text
    assert "<b>" not in answer.text
    if field != "name":
        assert 'value="mine"' in answer.text


@pytest.mark.parametrize("change", [{"parameters.NO\n": "1"}, {"algorithm": "none"}, {"queue": "none"}])
async def test_other_errors_are_above_the_form(browser: Browser, change: dict[str, str]) -> None:
    answer = await browser.post("/submit", {**FIELDS, **change})
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text


async def test_the_commands_make_the_same_request(site: Site, browser: Browser) -> None:
    fields = {**FIELDS, "name": "it's mine", "parameters.EPOCHS": "3", "key": "k"}
    answer = await browser.post("/submit/lines", fields, **{"hx-request": "true"})
    assert answer.status_code == 200
    text = answer.text.replace("&#39;", "'").replace("&#34;", '"').replace("&quot;", '"')
    line = re.search(r'id="line-trainctl">(.*?)</pre>', text, re.S)
    assert line is not None
    words = shlex.split(line[1])
    assert words[:3] == ["trainctl", "submit", "program"]
    assert "EPOCHS=3" in words
    assert "it's mine" in words
    assert "training.TrainingService/Train" in text
    assert "request_key" not in text
    await browser.page("/jobs/1", 404)


async def test_a_form_begins_with_another_job(site: Site, browser: Browser) -> None:
    await site.service.train({"EPOCHS": "7", "OPTIMISER": "adam"}, name="first")
    text = await browser.page("/submit?from=1")
    assert 'name="parameters.EPOCHS" value="7"' in text
    assert "<option selected>adam</option>" in text
    assert 'value="first"' in text
    await browser.page("/submit?from=2", 404)
    await browser.page("/submit?from=x", 400)


async def test_a_form_can_keep_what_it_has_no_inputs_for(site: Site, browser: Browser) -> None:
    request = pb.TrainRequest(
        metadata=metadata(),
        retry_policy=pb.RetryPolicy(max_attempts=7),
        deadlines=pb.Deadlines(run=Duration(seconds=600)),
        number_policy=pb.NumberPolicy(on_nonfinite="fail"),
        expected=Duration(seconds=60),
    )
    assert (await site.service.stub.Train(request)).job_id == 1
    assert '<input type="checkbox" name="from" value="1" checked>' in await browser.page("/submit?from=1")
    for fields in ({"from": "1"}, {}):
        answer = await browser.post(
            "/submit/lines", {**FIELDS, **fields, "key": "k"}, **{"hx-request": "true"}
        )
        assert ("--max-attempts 7" in answer.text) == bool(fields)
        await browser.post("/submit", {**FIELDS, **fields, "key": await key(browser)})
    first, kept, plain = [(await site.service.store.get(job_id)).spec for job_id in (1, 2, 3)]
    for name in ("retry", "deadlines", "numbers", "expected"):
        assert getattr(kept, name) == getattr(first, name) != getattr(plain, name)
    answer = await browser.post("/submit", {**FIELDS, "from": "1", "name": "<b>"})
    assert 'name="from" value="1" checked' in answer.text
    for source, status in (("4", 404), ("x", 400)):
        answer = await browser.post("/submit", {**FIELDS, "from": source})
        assert answer.status_code == status


async def test_text_of_algorithms_is_never_markup(visit: Visit) -> None:
    evil = "<img src=x>\"'"
    algorithm = algorithm_of(
        description=evil, parameters={"A": Parameter(description=evil, default=evil, choices=(evil, "b"))}
    )
    site = await visit(algorithms={**ALGORITHMS, "evil": algorithm})
    assert "<img" not in await site.browser().page("/submit?algorithm=evil")


async def test_a_viewer_cannot_submit(closed: Site) -> None:
    entry = Entry(closed.service)
    await entry.project("vision", eve="viewer")
    browser = closed.browser()
    await browser.log_in((await entry.token("eve")).text)
    answer = await browser.post("/submit", {**FIELDS, "project": "vision"})
    assert answer.status_code == 403
    await browser.page("/submit?project=default", 403)
    await browser.page("/submit?project=%3Cb%3E", 400)
