"""Chooses the waiting jobs to launch if the cluster's own queue decides when they start.

The cluster's own queue knows the capacity, the quotas and the priorities. So this service only passes jobs to
the cluster, in the order of the service's queues. A few jobs of each queue wait in the cluster's own queue;
all other waiting jobs have no pods yet.
"""

import math
from collections import Counter

from job_tracker.scheduling.model import Admit, Allocation, Plan, Promise, Reason, Reserve, Snapshot


def launches(snapshot: Snapshot, most: int) -> Plan:
    """Return the plan with the jobs to launch, so that at most `most` jobs of each queue wait in the
    cluster's own queue.
    """
    there = Counter(snapshot.running[job_id].gang.queue for job_id in snapshot.gated)
    admitted: list[Admit] = []
    held_back: list[Reserve] = []
    for queue in snapshot.waiting.queues():
        free = most - there[queue] if snapshot.is_open else 0
        for gang in snapshot.waiting.in_order(queue):
            if free <= 0:
                reason = Reason.DELEGATED if snapshot.is_open else Reason.ROOM
                held_back.append(Reserve(gang.job_id, Promise(math.inf, ""), (reason,)))
                break
            free -= 1
            admitted.append(Admit(gang.job_id, Allocation()))
    return Plan(tuple(admitted), (), tuple(held_back), is_delegated=True)
