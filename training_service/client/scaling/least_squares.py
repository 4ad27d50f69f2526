"""Nonnegative least squares with a few unknowns. Each set of unknowns is tried, with 0 for the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

Matrix = Sequence[Sequence[float]]

_SINGULAR = 1e-12
"""A pivot below this share of its column's squared length means that the columns depend on each other."""


@dataclass(frozen=True)
class Solution:
    """The values of the unknowns, all at least 0, and the size of their residuals."""

    values: tuple[float, ...]
    squares: float
    """The sum of squared residuals."""
    covariance: tuple[tuple[float, ...], ...]
    """The inverse of the normal matrix, with 0 in the rows and columns of values that are 0.

    It is the covariance of the values if the variance of the targets is 1.
    """


def nonnegative(rows: Matrix, targets: Sequence[float]) -> Solution:
    """Return the values, all at least 0, that minimize the sum of squares of `rows` · values - `targets`.

    For each set of unknowns, solve the least-squares problem with their columns alone. The best of these
    solutions without negative values is the minimum. The reason: at the minimum, the unknowns above 0 solve
    the least-squares problem with their columns alone, so the minimum is among these solutions.
    """
    count = len(rows[0])
    best = Solution((0.0,) * count, sum(target**2 for target in targets), ((0.0,) * count,) * count)
    for size in range(1, min(count, len(rows)) + 1):
        for used in combinations(range(count), size):
            found = _solved(rows, targets, used)
            if found is not None and found.squares < best.squares:
                best = found
    return best


def _solved(rows: Matrix, targets: Sequence[float], used: tuple[int, ...]) -> Solution | None:
    """Return the solution with the columns `used` alone; None if these columns are linearly dependent, or if
    a value would be negative.
    """
    lengths = [sum(row[column] ** 2 for row in rows) ** 0.5 for column in used]
    if not all(lengths):
        return None
    scaled = [[row[c] / length for c, length in zip(used, lengths, strict=True)] for row in rows]
    size = len(used)
    normal = [[sum(row[i] * row[j] for row in scaled) for j in range(size)] for i in range(size)]
    inverse = _inverse(normal)
    if inverse is None:
        return None
    right = [sum(row[i] * t for row, t in zip(scaled, targets, strict=True)) for i in range(size)]
    within = [sum(a * b for a, b in zip(line, right, strict=True)) for line in inverse]
    if any(value < 0 for value in within):
        return None
    values, covariance = [0.0] * len(rows[0]), [[0.0] * len(rows[0]) for _ in rows[0]]
    for i, column in enumerate(used):
        values[column] = within[i] / lengths[i]
        for j, other in enumerate(used):
            covariance[column][other] = inverse[i][j] / (lengths[i] * lengths[j])
    left = (
        sum(a * b for a, b in zip(row, values, strict=True)) - t for row, t in zip(rows, targets, strict=True)
    )
    return Solution(tuple(values), sum(each**2 for each in left), tuple(map(tuple, covariance)))


def _inverse(matrix: list[list[float]]) -> list[list[float]] | None:
    """Return the inverse of a matrix, by Gauss-Jordan elimination with pivots; None if the matrix is
    singular.
    """
    size = len(matrix)
    work = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(work[row][column]))
        if abs(work[pivot][column]) < _SINGULAR:
            return None
        work[column], work[pivot] = work[pivot], work[column]
        work[column] = [value / work[column][column] for value in work[column]]
        for row in range(size):
            if row != column:
                factor = work[row][column]
                work[row] = [a - factor * b for a, b in zip(work[row], work[column], strict=True)]
    return [row[size:] for row in work]
