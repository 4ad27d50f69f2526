"""A list changes row by row, and is then the same as after sending all of it."""

import random
import re

from training_service.web.row_list import RowList

_EACH = re.compile(r"<template>(.*?)</template>\n", re.DOTALL)
_DELETED = re.compile(r'<tr id="row-(\d+)" hx-swap-oob="delete"></tr>')
_ADDED = re.compile(r'<tbody hx-swap-oob="(afterbegin:#rows|afterend:#row-\d+)">(.*)</tbody>', re.DOTALL)
_CHANGED = re.compile(r'<tr hx-swap-oob="true" id="row-(\d+)">', re.DOTALL)


def rows(texts: dict[int, str]) -> dict[int, str]:
    filler = "x" * 200
    return {
        job_id: f'<tr id="row-{job_id}"><td>{texts[job_id]}{filler}</td></tr>\n'
        for job_id in sorted(texts, reverse=True)
    }


def event_of(sent: bytes) -> tuple[str, str, str]:
    """The id, the name and the data of an event."""
    head, name, *data = sent.decode().rstrip("\n").split("\n")
    return (
        head.removeprefix("id: "),
        name.removeprefix("event: "),
        "\n".join(line.removeprefix("data: ") for line in data),
    )


def applied(shown: dict[int, str], data: str) -> dict[int, str]:
    """Do what htmx does with these changes."""
    order = list(shown.items())

    def place(job_id: int) -> int:
        [found] = [place for place, (each, _) in enumerate(order) if each == job_id]
        return found

    for part in _EACH.findall(data if data.endswith("\n") else data + "\n"):
        if found := _DELETED.fullmatch(part):
            del order[place(int(found[1]))]
        elif found := _ADDED.fullmatch(part):
            above = found[1].rpartition("-")[2]
            [job_id] = re.findall(r'<tr id="row-(\d+)"', found[2])
            order.insert(place(int(above)) + 1 if above.isdecimal() else 0, (int(job_id), found[2]))
        else:
            found = _CHANGED.match(part)
            assert found, part
            at = place(int(found[1]))
            order[at] = (int(found[1]), part.replace(' hx-swap-oob="true"', "", 1))
    return dict(order)


def test_changes_make_the_same_list_as_all_rows() -> None:
    pick = random.Random(24)
    texts = dict.fromkeys(range(1, 30), "first")
    before = RowList(rows(texts))
    shown, names = dict(before.rows), set()
    for turn in range(300):
        for _ in range(pick.randrange(1, 4)):
            texts[pick.randrange(1, 60)] = f"turn {turn}"
        for job_id in pick.sample(sorted(texts), k=pick.randrange(3)):
            del texts[job_id]
        after = RowList(rows(texts))
        digest, name, data = event_of(after.event_after(before))
        assert digest == after.digest
        names.add(name)
        shown = applied(shown, data) if name == "changes" else dict(after.rows)
        assert list(shown.items()) == list(after.rows.items())
        before = after
    assert "changes" in names


def test_a_browser_with_another_list_gets_all_rows() -> None:
    some, none = RowList(rows({1: "a", 2: "b"})), RowList({})
    for after, before in ((some, None), (some, none), (none, some), (none, None)):
        assert event_of(after.event_after(before))[1] == "rows"
    assert "No jobs match" in event_of(none.event_after(some))[2]


def test_one_change_of_many_rows_is_short_and_made_once_for_all_viewers() -> None:
    texts = dict.fromkeys(range(50), "a")
    before, after = RowList(rows(texts)), RowList(rows({**texts, 7: "b"}))
    sent = after.event_after(before)
    assert len(sent) < len(after.event_after(None)) / 20
    assert after.event_after(before) == sent
    assert after.event_after(RowList(rows(texts))) == sent
