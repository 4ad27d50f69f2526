"""The output of a rank's processes is in its log, with times and within a bound."""

import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from job_tracker.domain.group import Phase
from job_tracker.logs.records import TIME, nanoseconds, records_of, text_of
from job_tracker.logs.writing import SMALLEST_LOG
from tests.support.backends import ProcessGroups, printed, seen, started
from tests.support.backends import text_of as all_of
from tests.support.jobs import job

GRACE = timedelta(seconds=60)


async def logged(world: ProcessGroups, program: str, **options: Any) -> bytes:
    """Run a program to its end and return its log."""
    world.add("program", sys.executable, "-c", program)
    backend = world.open(**options)
    await backend.launch(job())
    await seen(backend, job().group, lambda o: o.has_ended)
    records = b"".join([piece async for piece in backend.logs(job().group, 0)])
    await backend.stop(job().group, GRACE)
    return records


async def test_every_line_has_the_time_at_which_it_was_printed(world: ProcessGroups, tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    wait = f"while not os.path.exists({str(go_on)!r}): time.sleep(0.01)"
    world.add("program", sys.executable, "-c", f"import os, time\nprint('one')\n{wait}\nprint('two')")
    backend = world.open()
    before = time.time()
    await backend.launch(job())
    await printed(backend, job().group)
    between = time.time()
    go_on.touch()
    await seen(backend, job().group, lambda o: o.has_ended)
    records = b"".join([piece async for piece in backend.logs(job().group, 0)])
    one, two = (nanoseconds(record[:TIME]) / 1e9 for record in records_of(records))
    assert before <= one <= between <= two <= time.time()
    await backend.stop(job().group, GRACE)
    assert text_of(records) == "one\ntwo\n"


async def test_standard_error_is_in_the_same_log_and_in_order(world: ProcessGroups) -> None:
    program = "import os\nfor n in range(50): os.write(1 + n % 2, b'%d\\n' % n)"
    assert text_of(await logged(world, program)).split() == [str(n) for n in range(50)]


async def test_unterminated_and_invalid_output_is_logged(world: ProcessGroups) -> None:
    program = "import os\nos.write(1, b'\\xff\\x00\\r\\n' + 'é'.encode() * 100_000)"
    assert text_of(await logged(world, program)) == "\ufffd\x00\r\n" + "é" * 100_000


async def test_output_of_child_processes_is_logged(world: ProcessGroups) -> None:
    child = "import time; print('child', flush=True); time.sleep(100)"
    program = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE)\n"
        "sys.stdout.write(child.stdout.readline().decode())\n"
        "subprocess.Popen(['sh', '-c', 'echo grandchild; touch done; exec sleep 100']).poll()\n"
        "import os, time\n"
        "while not os.path.exists('done'): time.sleep(0.01)"
    )
    assert sorted(text_of(await logged(world, program)).split()) == ["child", "grandchild"]


async def test_much_output_just_before_the_end_is_logged(world: ProcessGroups) -> None:
    program = (
        "import os\nos.write(1, b'x' * 99 + b'\\n')\nfor n in range(9): os.write(1, b'%0999d\\n' % n * 60)"
    )
    assert len(text_of(await logged(world, program))) == 100 + 9 * 60 * 1000


def size_of(log: Path) -> int:
    """Return the size of a log. A segment may disappear in the meantime."""
    size = 0
    for segment in log.iterdir():
        with suppress(FileNotFoundError):
            size += segment.stat().st_size
    return size


async def test_a_rank_that_prints_endlessly_does_not_fill_the_disk(world: ProcessGroups) -> None:
    world.add("program", sys.executable, "-c", "n = 0\nwhile True:\n    n += 1; print(n, 'x' * 1000)")
    backend = world.open(most_log=SMALLEST_LOG)
    await started(backend, job())
    log = next(world.root.glob("live/*/*/log"))
    while len(list(log.iterdir())) < 7 or max(int(each.name) for each in log.iterdir()) < 2 * SMALLEST_LOG:
        pieces = [piece async for piece in backend.logs(job().group, 0, tail_lines=1)]
        for first in pieces[:1]:  # the rank may outrun the reader and leave a gap, but only later
            assert len(first) > 1000
    assert size_of(log) <= SMALLEST_LOG
    end = await backend.stop(job().group, GRACE)
    assert end is not None
    assert end.ranks[0].status.phase is Phase.STOPPED
    text = await all_of(backend.logs(job().group, 0))
    assert text.startswith("1 xxx")
    assert "bytes of this log, times included, are not kept" in text
    assert len(text) <= SMALLEST_LOG


async def test_a_follower_of_a_stopped_group_reads_the_complete_log(world: ProcessGroups) -> None:
    program = (
        "import signal, sys\n"
        "signal.signal(15, lambda *_: (print('bye'), sys.exit(0)))\n"
        "print('up')\nsignal.pause()"
    )
    world.add("program", sys.executable, "-c", program)
    backend = world.open()
    await started(backend, job())
    pieces = backend.logs(job().group, 0, follow=True)
    assert text_of(await anext(pieces)) == "up\n"
    await backend.stop(job().group, GRACE)
    assert [text_of(piece) async for piece in pieces] == ["bye\n"]
