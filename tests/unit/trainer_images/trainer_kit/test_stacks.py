"""The stacks of a process's threads, as another thread sees them."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
from trainer_kit import stacks

T = TypeVar("T")


def elsewhere(action: Callable[[], T]) -> T:
    """Return the result of the action in another thread, while this one waits."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(action).result()


def test_stacks_begin_with_the_main_thread() -> None:
    text = elsewhere(stacks.of_all_threads)
    first, calls = text.split("\n", 1)
    assert first == "Thread MainThread:"
    assert f"{Path(__file__).name}:" in calls
    assert "in elsewhere" in calls
    assert "in of_all_threads" not in calls  # not the thread that looks


def test_files_are_named_from_the_working_folder_which_may_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path(__file__)
    monkeypatch.chdir(here.parent.parent)
    assert f"\n  {here.parent.name}/{here.name}:" in elsewhere(stacks.of_all_threads)
    monkeypatch.chdir("/")
    assert f"\n  {here}:" in elsewhere(stacks.of_all_threads)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert f"\n  {here}:" in elsewhere(stacks.of_all_threads)


def test_stacks_of_many_threads_are_bounded() -> None:
    ends = threading.Event()
    threads = [threading.Thread(target=ends.wait) for _ in range(stacks.MOST_THREADS + 20)]
    for thread in threads:
        thread.start()
    try:
        text = elsewhere(stacks.of_all_threads)
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    assert text.count("Thread ") == stacks.MOST_THREADS
    assert text.endswith("more threads\n")
    assert len(text) <= stacks.MOST_CHARACTERS


def test_deep_stacks_are_bounded_and_keep_the_innermost_calls() -> None:
    def deeper(left: int) -> str:
        return deeper(left - 1) if left else elsewhere(stacks.of_all_threads)

    main_thread = deeper(500).partition("Thread ")[2].partition("\nThread ")[0]
    assert len(main_thread.splitlines()) < 50
    assert "in elsewhere" in main_thread


def test_the_place_changes_with_the_main_thread_only() -> None:
    def settled() -> int:
        """Return the place, once two in a row are equal: at first, the main thread may not wait yet."""
        before = stacks.place()
        while before != (before := stacks.place()):
            pass
        return before

    first = elsewhere(settled)
    assert first != 0
    assert elsewhere(stacks.place) != first  # called from another line
