"""A 2-D torus (Mikami et al., arXiv:1811.05233, 2018; Ying et al., arXiv:1811.06992, 2018): rings in both
dimensions.

The processes form a grid. Within each row, the process in column c computes the row's sum of chunk c. Then
each column sums its chunk over the rows, and each row gathers the chunks. This sends as many bytes as a ring,
in 2 (rows - 1) + 2 (columns - 1) steps.
"""

from torch import Tensor

from language_model.all_reduce import ring
from language_model.all_reduce.wire import Wire


def all_reduce(tensor: Tensor, wire: Wire, columns: int) -> None:
    """Sum a contiguous tensor over all processes of the wire, in place.

    A row has `columns` consecutive processes. Raises ValueError if the rows would not be complete.
    """
    if wire.size % columns:
        raise ValueError(f"{wire.size} processes do not form complete rows of {columns}")
    row_number, column_number = divmod(wire.rank, columns)
    row = wire.among(range(row_number * columns, (row_number + 1) * columns))
    column = wire.among(range(column_number, wire.size, columns))
    chunks = tensor.view(-1).tensor_split(columns)
    ring.reduce_scatter(chunks, row)
    ring.all_reduce(chunks[column_number], column)
    ring.all_gather(chunks, row)
