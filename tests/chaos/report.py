"""The figures of a run as a readable table."""

from collections import Counter
from collections.abc import Iterator

from tests.chaos.run import Record
from training_service._generated import training_service_pb2 as pb

_MAX_SHOWN = 60


def report(record: Record) -> Iterator[str]:
    """Yield the lines of the report."""
    honest = [played for played in record.played if not played.plan.is_hostile]
    hostile = [played for played in record.played if played.plan.is_hostile]
    yield f"seed {record.options.seed}, {len(record.played)} jobs in {record.seconds:.0f} s"
    for title, group in (("honest", honest), ("hostile", hostile)):
        ends: dict[str, Counter[str]] = {}
        for played in group:
            end = pb.TrainingStatus.Name(played.end.status) if played.end is not None else "no end"
            ends.setdefault(played.plan.kind, Counter())[end] += 1
        if group:
            yield f"{title} jobs: {len(group)}"
        for kind, counts in sorted(ends.items()):
            yield _row(f"  {kind}", ", ".join(f"{count} {end}" for end, count in counts.most_common()))
    attempts = sum(played.end.attempt for played in record.played if played.end is not None)
    yield _row("attempts, starts of ranks", f"{attempts}, {record.ranks}")
    yield _row("starts of services", record.starts)
    yield f"faults: {record.faults.total()}"
    for name, count in sorted(record.faults.items()):
        yield _row(f"  {name}", count)
    yield _row("doubles, overlaps, orphans", f"{record.doubles}, {record.overlaps}, {record.orphans}")
    yield _row("calls without an answer", ", ".join(f"{n} {name}" for name, n in record.repeats.items()) or 0)
    yield _row("longest GetTrainingStatus", f"{record.slowest_answer:.2f} s, without faults")
    yield _row("longest from submit to start", f"{record.slowest_start:.2f} s, without faults")
    yield _row("problems", len(record.problems))
    for problem in record.problems[:_MAX_SHOWN]:
        yield f"  {problem}"
    if len(record.problems) > _MAX_SHOWN:
        yield f"  and {len(record.problems) - _MAX_SHOWN} more"


def _row(name: str, figure: object) -> str:
    return f"{name:32} {figure}"
