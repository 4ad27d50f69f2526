"""trainctl logs: exact output, one rank or all, start times, and a service that goes away."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from training_service.client.cli.render.ranks import RankPrefixes

if TYPE_CHECKING:
    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl


def test_logs_are_printed_unchanged(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1)
    training.print(1, "[red]epoch 1\x1b[0m\r\n", "no line break", rank=1)
    printed = "[red]epoch 1\x1b[0m\r\nno line break"
    assert trainctl("logs", "1", "--rank", "1").stdout_bytes.decode() == printed
    assert trainctl.on_terminal("logs", "1", "--rank", "1", "--raw").stdout_bytes.decode() == printed


def test_a_terminal_gets_no_escape_sequences(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1)
    training.print(1, "[red]\x1b[31mepo", "ch\x1b]0;tit", "le\x07 1\n\x9b2Jthe ", "end\x1b", "[0m\n")
    assert trainctl.on_terminal("logs", "1").stdout == "[red]epoch 1\nthe end\n"


def test_an_unfinished_sequence_does_not_affect_the_next_rank(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    training.set_job(1)
    training.print(1, "one\n\x1b]8;;", "file:///\x1b\\two\r[1] fake\n")
    shown = trainctl.on_terminal("logs", "1", "--all-ranks").stdout
    assert shown == "[0] one\n[0] two\n[0] [1] fake\n"


def test_logs_as_json_keep_the_chunks(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1)
    training.print(1, "one\n", "two\n")
    assert [
        json.loads(line) for line in trainctl("logs", "1", "--tail", "1", "--json").stdout.splitlines()
    ] == [{"text": "two\n", "rank": 0, "attempt": 1, "position": "2"}]


def test_a_log_that_breaks_continues(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1)
    training.print(1, "one\n", "two\n")
    training.service.logs_break_after = 1
    result = trainctl("logs", "1")
    assert (result.exit_code, result.stdout) == (0, "one\ntwo\n")


def test_lines_of_all_ranks_start_with_their_rank(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1)
    training.print(1, "one\ntwo\n", "half a ", "line\n")
    assert trainctl("logs", "1", "--all-ranks").stdout == "[0] one\n[0] two\n[0] half a line\n"
    (request,) = training.service.requests
    assert request.all_ranks


def test_a_line_that_another_rank_interrupts_is_ended() -> None:
    prefixes = RankPrefixes()
    chunks = [(0, "half a "), (1, "\nwhole\n"), (0, "line\n"), (0, "the end")]
    texts = [prefixes.prefixed(rank, text) for rank, text in chunks]
    assert "".join(texts) == "[0] half a \n[1] \n[1] whole\n[0] line\n[0] the end"


def test_logs_can_start_at_a_time(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1)
    before = datetime.now(UTC)
    assert trainctl("logs", "1", "--since", "10m", "--timestamps").exit_code == 0
    (request,) = training.service.requests
    assert request.timestamps
    assert 0 <= (request.since.ToDatetime(UTC) - before + timedelta(minutes=10)).total_seconds() < 60
    assert trainctl("logs", "1", "--since", "yesterday").exit_code == 2


def test_a_log_that_cannot_continue_exits_with_4(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1)
    training.print(1, "one\n", "two\n")
    training.service.logs_break_after = 1
    training.service.knows_positions = False
    result = trainctl("logs", "1")
    assert (result.exit_code, result.stdout) == (4, "one\n")
    assert "going away" in result.stderr
