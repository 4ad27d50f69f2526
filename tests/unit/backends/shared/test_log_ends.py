"""The end of a log as evidence, without the report of a launcher, and the line with the cause."""

import pytest

from job_tracker.backends.shared.log_ends import evidence_of, failure_in, line_of_cause

TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
ValueError: the loss is not finite"""

PROCESS = """[{number}]:
  time      : 2026-11-22_23:01:57
  host      : localhost
  rank      : {number} (local_rank: {number})
  exitcode  : -15 (pid: 23370)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 23370
"""
# The output of torchrun 2.14, without some calls of its traceback.
TORCHRUN = """W1122 23:01:57.819000 22482 torch/distributed/elastic/multiprocessing/api.py:1028] Sending
E1122 23:01:57.823000 22482 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1)
Traceback (most recent call last):
  File "/bin/torchrun", line 8, in <module>
    sys.exit(main())
             ^^^^^^
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\x20
============================================================
python FAILED
------------------------------------------------------------
Failures:
{others}------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_23:01:57
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 23369)\x20
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================"""


@pytest.mark.parametrize("processes", [2, 8])
def test_the_evidence_is_the_error_of_the_training_without_the_report_of_its_launcher(processes: int) -> None:
    report = TORCHRUN.format(others="".join(PROCESS.format(number=each) for each in range(1, processes)))
    assert evidence_of(f"{TRACEBACK}\n{report}\n") == TRACEBACK
    assert evidence_of(f"{TRACEBACK}\n{report}\nand after it") == f"{TRACEBACK}\nand after it"
    assert line_of_cause(f"{TRACEBACK}\n{report}") == "ValueError: the loss is not finite"


@pytest.mark.parametrize("begin", ["sys.exit(main())", "ChildFailedError:", "Failures:", "Root Cause"])
def test_a_report_that_is_cut_off_is_kept_and_has_no_line_with_the_cause(begin: str) -> None:
    report = TORCHRUN.format(others=PROCESS.format(number=1))
    cut = report[report.index(begin) :]
    assert evidence_of(cut).splitlines() == cut.splitlines()[-20:]
    assert line_of_cause(cut) == ""
    assert line_of_cause(evidence_of(cut)) == ""


def test_the_cause_of_a_native_crash_is_the_innermost_call() -> None:
    crash = """Fatal Python error: Segmentation fault

Thread 0x00007f1 (most recent call first):
  File "threading.py", line 331 in wait

Current thread 0x00007f2 (most recent call first):
  File "ctypes/__init__.py", line 519 in string_at
  File "train.py", line 3 in <module>

Extension modules: numpy._core._multiarray_umath, torch._C (total: 2)"""
    assert line_of_cause(crash) == 'File "ctypes/__init__.py", line 519 in string_at'
    shortened = "\n".join(crash.splitlines()[7:])  # a deep stack: its beginning is not in the evidence
    assert line_of_cause(shortened) == 'File "train.py", line 3 in <module>'


@pytest.mark.parametrize(
    "besides",
    [
        "[rank0]:[W1122 23:01:57.819 ProcessGroupNCCL.cpp:1496] Warning: destroy_process_group() was not",
        "/lib/resource_tracker.py:254: UserWarning: 6 leaked semaphores\n  warnings.warn('x')",
        "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace",
        "====================",
        "\n \n",
    ],
)
def test_output_after_the_error_is_not_the_cause(besides: str) -> None:
    assert line_of_cause(f"{TRACEBACK}\n{besides}\n") == "ValueError: the loss is not finite"


def test_the_evidence_is_bounded_and_ends_with_the_log() -> None:
    lines = [f"line {number}" for number in range(100)]
    assert evidence_of("\n".join(lines)).splitlines() == lines[-20:]
    assert len(evidence_of("x" * 100_000)) == 4096
    assert evidence_of("") == line_of_cause("") == failure_in("") == ""


def test_reports_of_progress_do_not_displace_the_lines_before_a_failure() -> None:
    def reports(first: int) -> list[str]:
        return [f'::progress:: {{"step": {first + number}}}' for number in range(30)]

    log = ["reading the data", *reports(0), "the loss grows", *reports(100), "killed by the watchdog"]
    assert evidence_of("\n".join(log)).splitlines() == [
        *("reading the data", '::progress:: {"step": 29}'),
        *("the loss grows", '::progress:: {"step": 129}', "killed by the watchdog"),
    ]


def test_the_evidence_has_no_colours() -> None:
    assert evidence_of("\x1b[1;35mValueError\x1b[0m: \x1b[35mx\x1b[0m\x1b[K") == "ValueError: x"


def test_a_failure_begins_with_its_traceback() -> None:
    assert failure_in(f"all have passed the barrier\n{TRACEBACK}") == TRACEBACK
    assert failure_in("no traceback") == "no traceback"
