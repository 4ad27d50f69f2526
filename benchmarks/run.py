"""Runs benchmarks and prints one table: `make benchmarks`, or `python -m benchmarks.run [--quick]
[NAME…]`.
"""

import sys

from rich.progress import Progress

from benchmarks import (
    admissions,
    all_reduce,
    audit,
    auth,
    cancelling,
    checkpoints,
    compression,
    convergence,
    dashboard,
    draining,
    fair_shares,
    giving_way,
    idle,
    kills,
    kubernetes_latency,
    kubernetes_pods,
    kubernetes_steady,
    kubernetes_torch,
    launch,
    logs,
    memory,
    network_check,
    overlap,
    preemption,
    programs,
    redis_store,
    remedies,
    replicas,
    reports,
    running_jobs,
    scaling,
    schedules,
    scheduling,
    scheduling_traces,
    staging,
    stalls,
    status,
    throughput,
    tls,
    torchrun,
    train,
    two_projects,
    uploads,
)
from benchmarks.support import Row, clean_up_on_sigterm, print_table

BENCHMARKS = {
    "status": status.measure,
    "train": train.measure,
    "launch": launch.measure,
    "admissions": admissions.measure,
    "throughput": throughput.measure,
    "logs": logs.measure,
    "uploads": uploads.measure,
    "programs": programs.measure,
    "torchrun": torchrun.measure,
    "checkpoints": checkpoints.measure,
    "all-reduce": all_reduce.measure,
    "overlap": overlap.measure,
    "network-check": network_check.measure,
    "scaling": scaling.measure,
    "compression": compression.measure,
    "convergence": convergence.measure,
    "idle": idle.measure,
    "redis": redis_store.measure,
    "replicas": replicas.measure,
    "memory": memory.measure,
    "tls": tls.measure,
    "auth": auth.measure,
    "audit": audit.measure,
    "reports": reports.measure,
    "dashboard": dashboard.measure,
    "schedules": schedules.measure,
    "remedies": remedies.measure,
    "scheduling": scheduling.measure,
    "scheduling-traces": scheduling_traces.measure,
    "preemption": preemption.measure,
    "fair-shares": fair_shares.measure,
    "two-projects": two_projects.measure,
    "giving-way": giving_way.measure,
    "staging": staging.measure,
    "stalls": stalls.measure,
    "kills": kills.measure,
    "cancelling": cancelling.measure,
    "running-jobs": running_jobs.measure,
    "pods": kubernetes_pods.measure,
    "pods-latency": kubernetes_latency.measure,
    "pods-steady": kubernetes_steady.measure,
    "pods-torch": kubernetes_torch.measure,
    "draining": draining.measure,
}


def main(arguments: list[str]) -> int:
    if {"-h", "--help"} & set(arguments):
        print(f"{__doc__}\nBenchmarks: {', '.join(BENCHMARKS)}")
        return 0
    quick = "--quick" in arguments
    names = [name for name in arguments if not name.startswith("-")] or list(BENCHMARKS)
    rows: list[Row] = []
    if unknown := set(names) - set(BENCHMARKS):
        print(
            f"unknown benchmark {', '.join(unknown)}; the benchmarks are {', '.join(BENCHMARKS)}",
            file=sys.stderr,
        )
        return 2
    clean_up_on_sigterm()
    with Progress(transient=True) as progress:
        for name in progress.track(names, description="measuring"):
            rows += BENCHMARKS[name](quick)
    print_table(rows)
    return 1 if any(row.met is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
