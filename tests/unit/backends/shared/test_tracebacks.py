"""Tracebacks in the end of a log."""

import pytest

from job_tracker.backends.shared.tracebacks import Frame, exceptions, last_exception

HEAD = "Traceback (most recent call last):"
OWN = '  File "/home/me/train.py", line 7, in step'
LIBRARY = '  File "/usr/lib/python3.12/site-packages/torch/nn.py", line 99, in forward'
PEER = "RuntimeError: Connection closed by peer [10.0.0.2]:4711"


def lost_peer(line: str) -> bool:
    return "peer" in line


def test_the_place_is_the_innermost_call_of_the_users_own_code() -> None:
    (raised,) = exceptions([HEAD, OWN, "    forward()", LIBRARY, "    ^^^^", "IndexError: 7"])
    assert (raised.line, raised.at) == ("IndexError: 7", 5)
    assert str(raised.place) == "/home/me/train.py, line 7, in step"
    (inner,) = exceptions([HEAD, LIBRARY, "IndexError"])
    assert str(inner.place).endswith("nn.py, line 99, in forward")


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/home/me/train.py", "/home/me/train.py"),
        ("/var/lib/training/groups/live/4778.program-1/master/work/train.py", "…/work/train.py"),
        (f"/{'x' * 200}.py", f"…/{'x' * 37}.py"),
    ],
)
def test_a_long_path_is_shortened_to_the_file_and_its_folder(path: str, shown: str) -> None:
    assert str(Frame(path, 3)) == f"{shown}, line 3"


def test_a_traceback_that_is_cut_off_at_its_beginning_is_recognised_by_its_calls() -> None:
    (raised,) = exceptions([OWN, "    step()", "torch.cuda.SomeError: x"])
    assert raised.line == "torch.cuda.SomeError: x"
    assert not list(exceptions([OWN, "    step()", "Epoch: 3"]))
    assert [each.line for each in exceptions([HEAD, OWN, "StopHere: 3"])] == ["StopHere: 3"]


def test_an_ignored_exception_is_left_out() -> None:
    ignored = ["Exception ignored in: <function A.__del__>", HEAD, OWN, "ValueError: in __del__"]
    assert not list(exceptions(ignored))
    assert [each.line for each in exceptions([*ignored, HEAD, OWN, "KeyError: 1"])] == ["KeyError: 1"]


def test_a_chain_is_known() -> None:
    direct = "The above exception was the direct cause of the following exception:"
    lines = [HEAD, OWN, "KeyError: 1", "", direct, "", HEAD, OWN, "ValueError: 2"]
    last = list(exceptions(lines))[-1]
    assert [each.line for each in last.chain] == ["KeyError: 1"]
    apart = list(exceptions([HEAD, OWN, "KeyError: 1", "and", HEAD, OWN, "ValueError: 2"]))[-1]
    assert not list(apart.chain)


def test_the_process_that_failed_by_itself_counts_and_not_those_that_lost_it() -> None:
    own = [f"[rank1]: {line}" for line in (HEAD, OWN, "KeyError: 1")]
    others = [f"[rank{rank}]: {line}" for rank in (0, 2) for line in (HEAD, OWN, PEER)]
    mixed = [line for pair in zip(own, others[:3], strict=True) for line in pair] + others[3:]
    last = last_exception(mixed, lost_peer)
    assert last is not None
    assert (last.line, last.process) == ("KeyError: 1", "[rank1]:")
    only = last_exception(others, lost_peer)
    assert only is not None
    assert only.line == PEER
    assert last_exception([], lost_peer) is None


def test_the_exception_of_a_command_counts_that_the_program_has_started() -> None:
    command = 'Traceback (most recent call last):\n  File "child.py", line 1, in <module>\nKeyError: 1\n'
    parent = (
        'Traceback (most recent call last):\n  File "train.py", line 2, in <module>\n'
        "subprocess.CalledProcessError: Command 'python child.py' returned non-zero exit status 1.\n"
    )
    for between, name in (("", "KeyError"), ("went on\n", "subprocess.CalledProcessError")):
        found = last_exception(f"{command}{between}{parent}".splitlines(), lambda _: False)
        assert found is not None
        assert found.name == name


def test_the_first_exception_of_a_group_counts() -> None:
    lines = """  + Exception Group Traceback (most recent call last):
  |   File "/home/me/train.py", line 2, in <module>
  | ExceptionGroup: many (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | TypeError: two
    +---------------- 2 ----------------
    | ValueError: one
    +------------------------------------""".splitlines()
    assert [each.line for each in exceptions(lines)] == ["TypeError: two"]


def test_a_message_that_goes_on_in_the_next_line_has_it() -> None:
    (raised,) = exceptions([HEAD, OWN, "RuntimeError: Error(s) in Net:", "\tsize mismatch for fc", "more"])
    assert raised.line == "RuntimeError: Error(s) in Net: size mismatch for fc"
