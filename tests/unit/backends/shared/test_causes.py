"""The causes of failures: real ends of logs, and hostile ones."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_tracker.backends.shared.causes import LONGEST_CAUSE, cause_in, safe
from job_tracker.backends.shared.log_ends import READ_BYTES, READ_LINES, evidence_of
from job_tracker.domain.diagnosis import Category

REAL = Path(__file__).parent / "log_ends"
"""The real output of failing programs (Python 3.11, PyTorch 2.13). Only the paths were changed."""
CRASHED = Category.CRASHED
CAUSES = {
    # file: (a part of the cause, where it is in the user's code, a part of the remedy, category)
    "syntax": ("SyntaxError: invalid syntax", "(/home/me/syntax.py, line 1)", "the syntax", CRASHED),
    "importer": ("SyntaxError: invalid syntax", "(/home/me/syntax.py, line 1)", "the syntax", CRASHED),
    "missing": (
        "ModuleNotFoundError: No module named 'tomli_missing'",
        *("(/home/me/missing.py, line 1)", "of the name tomli_missing", CRASHED),
    ),
    "cannot": ("ImportError: cannot import", "(/home/me/cannot.py, line 1)", "two packages", CRASHED),
    "shadow": ("partially initialized module 'torch'", "(/home/me/cuda.py, line 1)", "torch.py", CRASHED),
    "chained": (
        "RuntimeError: the data cannot be loaded",
        "(/home/me/chained.py, line 7, in main), after FileNotFoundError: [Errno 2] No such file or "
        "directory: '/data/none/train.csv'",
        *("TRAINING_DATA_URI", CRASHED),
    ),
    "group": ("'shards/7.tar'", "(/home/me/group.py, line 2, in load)", "TRAINING_DATA_URI", CRASHED),
    "cleanup": ("ValueError: batch 7 has no labels", "(/home/me/cleanup.py, line 3, in main)", "", CRASHED),
    "worker": (
        "ValueError: sample 0 is damaged",
        "(/home/me/worker.py, line 5, in __getitem__)",
        "",
        CRASHED,
    ),
    "torchrun": ("KeyError: 'label'", "(/home/me/rankfail.py, line 3)", "", CRASHED),
    "env": ("KeyError: 'LEARNING_RATE'", "(/home/me/env.py, line 1)", "-p LEARNING_RATE=VALUE", CRASHED),
    "args": ("train.py: error: the following arguments are required: --lr", "", "arguments", CRASHED),
    "bash": ("tranctl-nope: command not found", "", "The program tranctl-nope is not installed", CRASHED),
    "full": ("No space left on device", "(/home/me/full.py, line 1)", "The disk is full", CRASHED),
    "numpymem": (
        *("_ArrayMemoryError: Unable to allocate", "(/home/me/numpymem.py, line 1)", "BATCH_SIZE"),
        Category.OUT_OF_MEMORY,
    ),
    "torchmem": (
        *("can't allocate memory", "(/home/me/torchmem.py, line 1)", "BATCH_SIZE"),
        Category.OUT_OF_MEMORY,
    ),
    "killed": ("DataLoader worker", "(/home/me/killed.py, line 7)", "shm_size", CRASHED),
    "port": ("EADDRINUSE", "(/home/me/port.py, line 4)", "MASTER_PORT", Category.PORT_IN_USE),
    "refused": ("The client socket has timed out", "(/home/me/refused.py, line 4)", "log of rank 0", CRASHED),
    "gloo_leave": ("Read error [127.0.0.1]:38796", "(/home/me/gloo.py, line 7)", "--all-ranks", CRASHED),
    "gloo_time": ("Timed out waiting 3000ms", "(/home/me/gloo.py, line 7)", "same number of steps", CRASHED),
    "nocuda": ("not compiled with CUDA", "(/home/me/nocuda.py, line 1)", "fit the GPU", CRASHED),
    "shape": ("mat1 and mat2 shapes", "(/home/me/shape.py, line 1)", "", CRASHED),
    "loads": ("Linear: size mismatch for weight", "(/home/me/loads.py, line 2)", "", CRASHED),
    "segv": (
        "Segmentation fault in /usr/lib/python3.11/ctypes/__init__.py, line 519, in string_at",
        *(", called from /home/me/segv.py, line 3, in step", "", CRASHED),
    ),
}


def test_every_real_log_is_tested() -> None:
    assert sorted(path.stem for path in REAL.iterdir()) == sorted(CAUSES)


@pytest.mark.parametrize("name", CAUSES)
def test_a_real_log_names_the_cause_the_place_and_the_remedy(name: str) -> None:
    line, place, remedy, category = CAUSES[name]
    cause = cause_in(evidence_of((REAL / f"{name}.txt").read_text()).splitlines())
    assert cause is not None
    assert line in cause.text
    assert cause.text.endswith(place)
    assert (remedy in cause.remedy) if remedy else not cause.remedy
    assert cause.category is category


FRAME = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 3, in <module>\n    step()\n'
LINES = {
    "java.lang.OutOfMemoryError: Java heap space": "heap of Java",
    # the last line of a traceback, or a line alone: a part of the remedy
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has": "of the GPU",
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while": "of the GPU",
    "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating": "of the GPU",
    "MemoryError": "memory limit",
    "PermissionError: [Errno 13] Permission denied: '/models/7'": "MODEL_URI",
    "OSError: [Errno 30] Read-only file system: '/data/cache'": "TMPDIR",
    "OSError: [Errno 122] Disk quota exceeded": "disk is full",
    "OSError: [Errno 24] Too many open files: 'x'": "ulimit -n",
    "ImportError: libcudart.so.12: cannot open shared object file: No such file": "library libcudart.so.12",
    "RuntimeError: CUDA error: device-side assert triggered": "CUDA_LAUNCH_BLOCKING",
    "RuntimeError: Found no NVIDIA driver on your system.": "no GPU",
    "RuntimeError: DataLoader worker (pid 5) is killed by signal: Bus error. It is possible": "shm_size",
    "torch.distributed.DistBackendError: NCCL error: remote process exited or there was": "another rank",
    "ConnectionRefusedError: [Errno 111] Connection refused": "log of rank 0",
    "socket.gaierror: [Errno -2] Name or service not known": "log of rank 0",
    "ValueError: loss is nan at step 5": "diverged",
    "ValueError: Input X contains NaN.": "in the data",
    "subprocess.CalledProcessError: Command '['cat', 'x']' returned non-zero exit status 1.": "A command",
    "trainer_kit.errors.GroupError: rank 2 could not reach the master": "log of rank 0",
}


@pytest.mark.parametrize("line", LINES)
def test_an_exception_has_a_remedy_by_its_kind(line: str) -> None:
    cause = cause_in(f"{FRAME}{line}".splitlines())
    assert cause is not None
    assert cause.text == f"{line} (/home/me/train.py, line 3)"
    assert LINES[line] in cause.remedy


def test_a_missing_package_can_be_one_of_trainctl_run_too() -> None:
    cause = cause_in(["ModuleNotFoundError: No module named 'six'"])
    assert cause is not None
    assert "with --requirements of trainctl run" in cause.remedy
    assert "in the image, or in the algorithm's process.virtual_environment" in cause.remedy


@pytest.mark.parametrize(
    ("line", "text", "remedy"),
    [
        ("terminate called\n  what():  std::bad_alloc", "std::bad_alloc", "memory limit"),
        ("  what():  index 7 is wrong", "index 7 is wrong", ""),
        ("train.py: error: the file is odd", "train.py: error: the file is odd", ""),
        ("Error: No such option: --rl", "Error: No such option: --rl", "arguments"),
        (
            "[rank3]:[E1123] Watchdog caught collective operation timeout: WorkNCCL",
            "[E1123] Watch",
            "compare the logs",
        ),
    ],
)
def test_a_line_alone_can_name_the_cause(line: str, text: str, remedy: str) -> None:
    cause = cause_in(["Loading", *line.splitlines(), "", "done"])
    assert cause is not None
    assert cause.text.startswith(text)
    assert (remedy in cause.remedy) if remedy else not cause.remedy


def test_an_exception_after_which_the_training_went_on_is_not_the_cause() -> None:
    handled = f"{FRAME}ValueError: no such batch\nskipped it\n"
    assert cause_in([*handled.splitlines(), '::progress:: {"step": 9}', "bye"]) is None
    assert cause_in(["step 1", "step 2"]) is None
    assert cause_in([]) is None


@pytest.mark.parametrize(
    "went_on", ["step 9 loss 0.4", "Epoch 3/10", "INFO:root:step 9", "2026-11-23 10:00:00 [INFO] iter: 9"]
)
def test_a_line_about_a_later_step_shows_that_the_training_went_on(went_on: str) -> None:
    handled = f"{FRAME}ModuleNotFoundError: No module named 'fast_attention'"
    assert cause_in([*handled.splitlines(), went_on, "ERROR: no folder for checkpoints"]) is None
    assert cause_in(["checkpoint: No such file or directory", "starting anew", went_on, "bye"]) is None


@pytest.mark.parametrize("ends", ["Epoch 0:  3%|#  | 1/32 [00:01, 9it/s]", "Epoch 0: 3it [00:01, 2it/s]"])
def test_a_bar_that_is_drawn_again_at_the_end_does_not_hide_the_cause(ends: str) -> None:
    cause = cause_in([*f"{FRAME}KeyError: 'label'".splitlines(), ends])
    assert cause is not None
    assert cause.text.startswith("KeyError")


def test_steps_at_the_very_end_may_be_of_another_thread() -> None:
    cause = cause_in([*f"{FRAME}KeyError: 'label'".splitlines(), "step 9", "step 10", ""])
    assert cause is not None
    assert cause.text.startswith("KeyError")
    cpp = cause_in(["terminate called", "  what():  std::bad_alloc", "step 9"])
    assert cpp is not None
    assert cpp.text == "std::bad_alloc"


def test_steps_of_another_process_do_not_hide_the_cause() -> None:
    raised = [f"[rank1]: {line}" for line in f"{FRAME}KeyError: 'label'".splitlines()]
    cause = cause_in([*raised, "step 9", '::progress:: {"step": 9}'])
    assert cause is not None
    assert cause.text.startswith("KeyError")


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: Permission denied for the cache",
        "2026-11-23 10:00:00 WARN Connection refused",
        "/home/me/t.py:3: UserWarning: No space left on device",
        "user mary: not found",
    ],
)
def test_a_warning_or_a_similar_word_is_not_the_cause(line: str) -> None:
    assert cause_in([line, "the accuracy is too low"]) is None


@pytest.mark.parametrize("line", ["sh: 1: nvcc: not found", "bash: line 2: nvcc: command not found"])
def test_a_program_that_a_shell_has_not_found_is_named(line: str) -> None:
    cause = cause_in([line])
    assert cause is not None
    assert "The program nvcc is not installed" in cause.remedy


STACK = 'Current thread 0x7f (most recent call first):\n  File "/home/me/train.py", line 9 in step\n'


def test_a_stack_that_a_program_prints_before_it_fails_is_not_the_cause() -> None:
    cause = cause_in(f"{STACK}too slow\n{FRAME}KeyError: 'label'".splitlines())
    assert cause is not None
    assert cause.text.startswith("KeyError")
    crashed = cause_in(f"Fatal Python error: Segmentation fault\n\n{STACK}{FRAME}KeyError: 'x'".splitlines())
    assert crashed is not None
    assert crashed.text == "Segmentation fault in /home/me/train.py, line 9, in step"


def test_an_error_of_cpp_that_aborts_python_is_named_with_its_remedy() -> None:
    log = f"terminate called\n  what():  std::bad_alloc\nFatal Python error: Aborted\n\n{STACK}"
    cause = cause_in(log.splitlines())
    assert cause is not None
    assert cause.text == "std::bad_alloc (/home/me/train.py, line 9, in step)"
    assert "memory limit" in cause.remedy
    unknown = cause_in(log.replace("std::bad_alloc", "index 7").splitlines())
    assert unknown is not None
    assert (unknown.text, unknown.remedy) == ("index 7 (/home/me/train.py, line 9, in step)", "")


@pytest.mark.parametrize(
    "line", ["free(): invalid pointer", "train: model.cc:42: void load(): Assertion `n > 0' failed."]
)
def test_the_c_library_names_the_cause_of_an_abort(line: str) -> None:
    cause = cause_in(["mkdir: Permission denied", line])
    assert cause is not None
    assert (cause.text, cause.remedy) == (line, "")


def test_the_first_exception_of_a_chain_is_named() -> None:
    context = "\nDuring handling of the above exception, another exception occurred:\n\n"
    cause = cause_in(f"{FRAME}KeyError: 'label'\n{context}{FRAME}OSError: cannot flush".splitlines())
    assert cause is not None
    assert cause.text == "OSError: cannot flush (/home/me/train.py, line 3), after KeyError: 'label'"


def test_the_cause_is_kept_as_evidence_before_many_other_lines() -> None:
    raised = f"{FRAME}KeyError: 'label'"
    evidence = evidence_of(
        "\n".join(["begin"] * 50 + [raised] + [f"closing {n} {'x' * 900}" for n in range(90)])
    )
    assert raised in evidence
    assert "closing 89" in evidence
    assert len(evidence) <= 4096
    found = cause_in(evidence.splitlines())
    assert found is not None
    assert found.text == "KeyError: 'label' (/home/me/train.py, line 3)"


def test_a_job_writes_only_the_quoted_part_of_its_message() -> None:
    forged = f'{FRAME}ValueError: x". Training succeeded. \x1b[2J\u202e tst_abcd1234_{"s" * 40} redis://me:pw@host/1'
    cause = cause_in(forged.splitlines())
    assert cause is not None
    assert '"' not in cause.text
    assert cause.text.isprintable()
    assert "ssss" not in cause.text
    assert "pw" not in cause.text
    assert len(safe("x" * 5000)) < LONGEST_CAUSE + 5


@given(
    st.lists(
        st.one_of(st.text(max_size=80), st.sampled_from(FRAME.splitlines()), st.sampled_from(list(LINES)))
    )
)
def test_any_text_is_read(lines: list[str]) -> None:
    evidence = evidence_of("\n".join(lines))
    cause = cause_in(evidence.splitlines())
    assert cause is None or (cause.text.isprintable() and len(cause.text) < 4 * LONGEST_CAUSE)


@pytest.mark.parametrize(
    "line",
    [
        *(
            "a" * 1000,
            "A." * 500,
            ": " * 500,
            '  File "' * 120,
            "[1,0]<stdout>:" * 70,
            "| " * 500,
            "+-" * 500,
        ),
        *("DataLoader worker " * 55, "Collective " * 90, "No such file or directory '" * 40, "://" * 330),
        *("RESOURCE_EXHAUSTED: " * 50, "Current thread " * 66, " " * 1000, "Fatal Python error: " * 50),
        *(
            '  File "x", line 1, in f',
            "  what():  " * 90,
            "x: error" * 125,
            "tst_abcd1234_" * 75,
            "EOF" * 333,
        ),
    ],
)
def test_the_time_for_a_hostile_log_is_bounded(line: str) -> None:
    log = "\n".join([line] * min(READ_LINES, READ_BYTES // len(line)))
    before = time.process_time()
    cause_in(log.splitlines())
    cause_in(evidence_of(log).splitlines())
    assert time.process_time() - before < 1.0
