"""Layouts of groups, as frameworks get them."""

from job_tracker.domain.policies import Elastic
from job_tracker.frameworks import Address, GroupLayout


def layout(*roles: str, processes: int = 1, elastic: Elastic | None = None) -> GroupLayout:
    addresses = tuple(Address(f"h{rank}", 20000 + rank) for rank in range(len(roles)))
    return GroupLayout(addresses=addresses, roles=roles, processes_per_instance=processes, elastic=elastic)


THREE = layout("master", "worker", "worker")
