"""Rounds of pairs that are measured at the same time."""

from collections.abc import Sequence

Pair = tuple[int, int]


def rounds(members: Sequence[int]) -> list[list[Pair]]:
    """Return rounds in which each member is in at most one pair. Together, the rounds have each pair once.

    There are n - 1 rounds for n members if n is even, and n rounds if n is odd, which is the least possible
    number. This is the circle method of tournaments (Kirkman, 1847): one member stays, and the others rotate
    around it.
    """
    circle: list[int | None] = [*members]
    if len(circle) % 2:
        circle.append(None)  # the partner of None pauses
    found = []
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        opposite = zip(circle[:half], reversed(circle[half:]), strict=True)
        found.append([(min(a, b), max(a, b)) for a, b in opposite if a is not None and b is not None])
        circle.insert(1, circle.pop())
    return [pairs for pairs in found if pairs]


def plan(size: int, local_size: int) -> list[list[Pair]]:
    """Return the rounds for `size` ranks, `local_size` in each instance.

    Ranks of an instance share its links, so the first rank of an instance represents it. If instances have
    several ranks, the first round is within the instances, between the first two ranks of each.
    """
    first_ranks = range(0, size, local_size)
    within = [(rank, rank + 1) for rank in first_ranks if local_size > 1]
    return ([within] if within else []) + rounds(first_ranks)
