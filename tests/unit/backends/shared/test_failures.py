"""Diagnoses of programs that failed by themselves, the same on each engine."""

import signal

import pytest

from job_tracker.backends.base import Observation, RankObservation
from job_tracker.backends.docker.containers import Container
from job_tracker.backends.docker.status import observe_rank
from job_tracker.backends.kubernetes import diagnosis as kubernetes
from job_tracker.backends.process.diagnosis import diagnose
from job_tracker.backends.process.records import ExitRecord
from job_tracker.backends.shared.failures import crashed, exited, only_lost_a_peer
from job_tracker.backends.shared.requirements_runner import EXIT_CODE, FAILED
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.group import Phase, RankStatus

FRAME = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 3, in <module>\n'
KEY_ERROR = f"{FRAME}KeyError: 'label'"
LOST_PEER = f"{FRAME}RuntimeError: Connection closed by peer [10.0.0.2]:4711"


def on_docker(code: int, log: str) -> Diagnosis | None:
    ended = Container(
        id="1", name="n", labels={}, status="exited", program="", created_at=0.0, exit_code=code, log_tail=log
    )
    return observe_rank(1, ended, launching=False, stopping=False, ended_before=False).diagnosis


def test_a_failure_names_its_cause_and_what_to_do() -> None:
    why = exited(1, 1, f"{FRAME}ModuleNotFoundError: No module named 'tomli'")
    assert why.summary == "Rank 1 exited with code 1."
    assert why.cause == "ModuleNotFoundError: No module named 'tomli' (/home/me/train.py, line 3)"
    assert "of the name tomli" in why.resolution
    unknown = exited(1, 3, "nothing of interest")
    assert (unknown.cause, unknown.category) == ("", Category.CRASHED)
    assert "Read the end of its log" in unknown.resolution


@pytest.mark.parametrize(
    ("log", "code"),
    [(KEY_ERROR, 1), (f"{FRAME}MemoryError", 1), ("nothing", 3), (KEY_ERROR, 128 + signal.SIGSEGV)],
)
def test_the_diagnosis_is_the_same_on_each_engine(log: str, code: int) -> None:
    raw = 128 - code if code > 128 else code  # a supervisor records a signal as a negative number
    process = diagnose(1, ExitRecord(code=raw, at=0.0, stopped=False, oom_kills=0), log, "python")
    assert process is not None
    assert process.detail == log
    assert process == on_docker(code, log) == kubernetes.ended(1, {"message": log}, code)


UNTRUSTED = {
    "uv": "error: Failed to fetch: https://pypi.org/simple/numpy/\n"
    "  cause: error sending request for url (https://pypi.org/simple/numpy/)\n"
    "  cause: client error (Connect)\n"
    "  cause: invalid peer certificate: UnknownIssuer",
    "urllib": f"{FRAME}urllib.error.URLError: <urlopen error [SSL: CERTIFICATE_VERIFY_FAILED] certificate "
    "verify failed: unable to get local issuer certificate (_ssl.c:1006)>",
    "rustls in Python": f"{FRAME}RuntimeError: error: invalid peer certificate: UnknownIssuer",
    "curl": "curl: (60) SSL certificate problem: unable to get local issuer certificate",
}


@pytest.mark.parametrize("log", UNTRUSTED.values(), ids=UNTRUSTED)
def test_an_authority_that_is_not_trusted_has_its_remedy_and_is_no_lost_rank(log: str) -> None:
    why = exited(1, 1, log)
    assert "SSL_CERT_FILE" in why.resolution
    assert "process.inherit" in why.resolution
    assert "certificate" in why.cause
    assert not only_lost_a_peer(why)


def test_packages_that_could_not_be_fetched_for_an_authority_have_its_remedy() -> None:
    why = exited(0, EXIT_CODE, f"{UNTRUSTED['uv']}\n{FAILED}: uv ended with exit code 2")
    assert why.category is Category.REQUIREMENTS_FAILED
    assert "SSL_CERT_FILE" in why.resolution
    assert "Correct the versions" not in why.resolution
    other = exited(0, EXIT_CODE, f"error: No solution found\n{FAILED}: uv ended with exit code 1")
    assert "Correct the versions" in other.resolution
    assert "SSL_CERT_FILE" not in other.resolution


def test_an_abort_after_an_error_of_a_known_kind_has_its_remedy() -> None:
    log = "terminate called\n  what():  std::bad_alloc"
    assert "memory limit" in crashed(1, signal.SIGABRT, log).resolution
    assert "native code" in crashed(1, signal.SIGSEGV, log).resolution


def test_another_port_follows_only_where_the_engine_gives_one() -> None:
    log = f"{FRAME}OSError: [Errno 98] Address already in use"
    process = diagnose(1, ExitRecord(code=1, at=0.0, stopped=False, oom_kills=0), log, "python")
    docker = on_docker(1, log)
    assert process is not None
    assert docker is not None
    assert process.category is docker.category is Category.PORT_IN_USE
    assert process.retryable
    assert not docker.retryable
    assert "another port" in process.resolution
    assert "MASTER_PORT" in docker.resolution


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(signal.SIGSEGV, "native code"), (signal.SIGBUS, "shm_size"), (signal.SIGILL, "processor")],
)
def test_a_crash_has_a_remedy_by_its_signal(number: signal.Signals, remedy: str) -> None:
    why = crashed(0, number, "Fatal Python error: x")
    assert why.summary == f"Rank 0 crashed with {number.name}."
    assert remedy in why.resolution


def failed(rank: int, at: float, log: str) -> RankObservation:
    return RankObservation(RankStatus(rank, Phase.FAILED, 1), exited(rank, 1, log), at)


def test_the_rank_that_failed_by_itself_is_the_cause_even_if_it_ended_a_little_later() -> None:
    seen = Observation((failed(0, 10.0, LOST_PEER), failed(1, 10.4, KEY_ERROR)))
    assert seen.first_failure is not None
    assert seen.first_failure.rank == 1
    later = Observation((failed(0, 10.0, LOST_PEER), failed(1, 30.0, KEY_ERROR)))
    assert later.first_failure is not None
    assert later.first_failure.rank == 0
