"""Finds the processes that are behind others in a collective operation. Pure functions of reports.

All processes of a group have to begin the same operations in the same order. So if processes wait in an
operation, they wait for a process that has begun fewer operations, or a different operation with the same
number.
"""

from collections.abc import Iterable, Mapping, Sequence

from job_tracker.reports.collectives import DEFAULT_GROUP, Collective

_SAME_SIZES = ("all_reduce", "allreduce")
"""The operations whose tensors have the same sizes in all processes. Other tensors may differ in size."""


def behind(known: Mapping[int, Sequence[Collective]]) -> Mapping[int, str]:
    """Return the processes for which others wait in collective operations, each with an explanation.

    If some of these processes are in no collective operation themselves, only those are returned. `known` has
    the last operations of each process that reports them.
    """
    found: dict[int, str] = {}
    for group in dict.fromkeys(each.group for several in known.values() for each in several):
        at = {process: _in(group, several) for process, several in known.items() if several}
        members = {process: each for process, each in at.items() if each or group == DEFAULT_GROUP}
        waiting = [each for each in members.values() if each and not each.done]
        if waiting:
            for process, other in _late(members).items():
                found.setdefault(process, _words(group, members[process], other))
    busy = {process for process in found if all(each.done for each in known[process])}
    return {process: words for process, words in found.items() if not busy or process in busy}


def _in(group: str, several: Iterable[Collective]) -> Collective | None:
    return next((each for each in several if each.group == group), None)


def _late(members: Mapping[int, Collective | None]) -> Mapping[int, Collective]:
    """Return the processes that are behind; if none is, those in another operation than the majority.

    For each of these processes, the result has the operation in which the others wait. The result is empty if
    no process is behind, and all are in the same operation or no operation has a majority.
    """
    furthest = max((each for each in members.values() if each), key=lambda each: each.number)
    late = {process for process, each in members.items() if each is None or each.number < furthest.number}
    if late:
        return dict.fromkeys(late, furthest)
    kinds: dict[tuple[str, str], list[int]] = {}
    for process, each in members.items():
        if each is not None:
            sizes = each.sizes if each.operation in _SAME_SIZES else ""
            kinds.setdefault((each.operation, sizes), []).append(process)
    most = max(kinds.values(), key=len)
    usual = members[most[0]]
    if usual is None or 2 * len(most) <= len(members):
        return {}
    return dict.fromkeys(members.keys() - set(most), usual)


def _words(group: str, own: Collective | None, other: Collective) -> str:
    if own is None:
        return f"it has begun no collective operation in {group}, and others are in {other}"
    done = "has done" if own.done else "is in"
    return f"it {done} {own} of {group}, and others are in {other}"
