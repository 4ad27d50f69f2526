"""Reading traces: columns by name, and refusals that name line, column, value and what is allowed."""

import gzip
from pathlib import Path

import pytest

from job_tracker.scheduling.model import Expected
from job_tracker.scheduling.simulation import trace
from job_tracker.scheduling.simulation.attempts import Saving
from job_tracker.scheduling.simulation.trace import TraceError, TraceJob, read


def written(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text)
    return path


def test_columns_are_found_by_name_and_jobs_without_gpus_are_left_out(tmp_path: Path) -> None:
    text = "gpus,extra,run_s,submit_s\n2,x,30,7\n0,x,30,8\n1,x,5.5,3\n"
    assert read(written(tmp_path, text)) == [TraceJob(3, 5.5, 1), TraceJob(7, 30, 2)]


def test_queue_algorithm_and_priority_are_read_if_they_are_there(tmp_path: Path) -> None:
    text = "submit_s,run_s,gpus,queue,algorithm,priority\n0,1,1,q1,bert,-3\n"
    assert read(written(tmp_path, text)) == [TraceJob(0, 1, 1, "q1", "bert", -3)]


def test_elastic_jobs_and_how_jobs_save_are_read_if_they_are_there(tmp_path: Path) -> None:
    text = "submit_s,run_s,gpus,least,saves\n0,1,4,2,\n0,1,4,,notice\n0,1,4,0,never\n0,1,4,4,600\n"
    found = read(written(tmp_path, text))
    assert [job.least for job in found] == [2, 0, 0, 4]
    assert [job.saving for job in found] == [
        Saving(),
        Saving(),
        Saving(on_notice=False),
        Saving(every=600.0, on_notice=False),
    ]


def test_without_an_algorithm_alike_requests_are_of_one_kind(tmp_path: Path) -> None:
    text = "submit_s,run_s,gpus,gpu_milli,cpu_milli,memory_mib,qos\n0,1,1,460,6000,12288,LS\n"
    (job,) = read(written(tmp_path, text))
    assert (job.algorithm, job.priority) == ("460/6000/12288/LS", 2)


def test_a_compressed_trace_is_read_the_same(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"submit_s,run_s,gpus\n1,2,3\n"))
    assert read(path) == [TraceJob(1, 2, 3)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("submit_s,gpus\n1,2\n", "line 1: no column run_s"),
        ("submit_s,run_s,gpus,run_s\n", "line 1: column 'run_s' is there twice"),
        (
            "submit_s,run_s,gpus\n1,2,3\n1,x,3\n",
            "line 3: run_s is 'x'; allowed is a number of seconds from 0",
        ),
        ("submit_s,run_s,gpus\nnan,2,3\n", "line 2: submit_s is 'nan'; allowed is a number of seconds"),
        ("submit_s,run_s,gpus\n-1,2,3\n", "line 2: submit_s is '-1'"),
        (
            "submit_s,run_s,gpus\n1,2,1.5\n",
            "line 2: gpus is '1.5'; allowed is a whole number from 0 to 1000000",
        ),
        ("submit_s,run_s,gpus\n1,2,99999999999999\n", "line 2: gpus is '99999999999999'"),
        ("submit_s,run_s,gpus\n1,2\n", "line 2: it has 2 values, but the file has 3 columns"),
        (
            "submit_s,run_s,gpus,least\n1,2,4,5\n",
            "line 2: least is '5'; allowed is a whole number from 0 to 4",
        ),
        (
            "submit_s,run_s,gpus,saves\n1,2,4,often\n",
            "line 2: saves is 'often'; allowed is notice, never, or",
        ),
        ("submit_s,run_s,gpus,saves\n1,2,4,0\n", "line 2: saves is '0'; allowed is notice, never, or"),
        ("submit_s,run_s,gpus,qos\n1,2,1,gold\n", "line 2: qos is 'gold'; allowed is BE or Burstable"),
        ("submit_s,run_s,gpus,queue\n1,2,1,\x1b[2J\n", r"line 2: queue is '\x1b[2J'; allowed is a name"),
        ('submit_s,run_s,gpus\n1,"2,3\n', "not CSV"),
        ("submit_s,run_s,gpus\n", "no job with gpus above 0"),
        ("", "line 1: no column submit_s, run_s, gpus"),
        ("submit_s,run_s,gpus\n" + "1" * 20_000, "line 2: it is longer than 10000 characters"),
    ],
)
def test_a_bad_trace_is_refused_with_the_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(TraceError) as refused:
        read(written(tmp_path, text))
    assert problem in str(refused.value)
    assert "trace.csv" in str(refused.value)


@pytest.mark.parametrize(
    "content",
    [b"\x1f\x8b\x08\x00nonsense", gzip.compress(b"submit_s", mtime=0)[:-9]],
    ids=["nonsense", "cut"],
)
def test_a_broken_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(content)
    with pytest.raises(TraceError, match="gzip"):
        read(path)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"submit_s,run_s,gpus\n\xff,1,1\n")
    with pytest.raises(TraceError, match="UTF-8"):
        read(path)


def test_a_small_file_of_much_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST_BYTES", 50_000)
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"submit_s,run_s,gpus\n" + b"1,1,1\n" * 100_000))
    with pytest.raises(TraceError, match="more than 50000 bytes"):
        read(path)


def test_a_trace_with_too_many_jobs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST_JOBS", 10)
    with pytest.raises(TraceError, match="more than 10 jobs"):
        read(written(tmp_path, "submit_s,run_s,gpus\n" + "1,1,1\n" * 11))


def test_projects_and_expected_run_times_are_read(tmp_path: Path) -> None:
    head = "submit_s,run_s,gpus,project,expected_s\n"
    first, second = read(written(tmp_path, head + "1,10,1,vision,20\n2,10,1,,\n"))
    assert (first.project, first.said) == ("vision", Expected(median=20, high=20))
    assert (second.project, second.said) == ("", None)
    with pytest.raises(TraceError, match="line 2: expected_s is 'x'; allowed is a number of seconds"):
        read(written(tmp_path, head + "1,10,1,vision,x\n"))
