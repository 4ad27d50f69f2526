"""Tokens: the rate of calls on services with one or 10,000 tokens, against a service that requires none.

The same client (64 calls in flight, a separate process) calls three services in turn, in the same run: one
that requires no token, one with a single token, and one with 10,000 tokens, which are used in turn, and with
1,000 projects of ten members each. The services have few jobs. The capacity is 1, and a job that never ends
uses it, so no other job starts.
"""

import asyncio
import statistics
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.status import FEW, mixed_ids
from benchmarks.support import Client, Row, Server, fill, interleaved, ratio, run_alone, service, workspace
from job_tracker.access.tokens import new_token
from job_tracker.domain.access import Project, Token
from job_tracker.domain.caller import Role
from job_tracker.store.sqlite import SqliteStore

_TOKENS, _PROJECTS, _MEMBERS = 10_000, 1_000, 10


def measure(quick: bool) -> list[Row]:
    seconds, rounds = (1.5, 4) if quick else (0.8, 21)
    ids = mixed_ids(FEW)
    with workspace() as folder, closing(Client()) as client:
        for name in ("open", "one", "many"):
            fill(folder / name, FEW)
        [token] = asyncio.run(_add(folder / "one", tokens=1, projects=1))
        tokens = asyncio.run(_add(folder / "many", tokens=_TOKENS, projects=_PROJECTS))
        with (
            service(folder / "open") as unguarded,
            service(folder / "one", auth__loopback="token") as one,
            service(folder / "many", auth__loopback="token") as many,
        ):

            def rates(method: str) -> list[list[float]]:
                def rate(server: Server, sent: list[str]) -> float:
                    return client.calls_per_second(server, method, seconds=seconds, job_ids=ids, tokens=sent)

                return interleaved(
                    rounds,
                    lambda: rate(unguarded, []),
                    lambda: rate(one, [token]),
                    lambda: rate(many, tokens),
                )

            return [
                row
                for name, method in (("status", "GetTrainingStatus"), ("train", "Train"))
                for row in _rows(name, rates(method))
            ]


def _rows(name: str, rates: list[list[float]]) -> Iterator[Row]:
    unguarded, one, many = rates
    what = f"{_TOKENS:,} tokens and {_PROJECTS:,} projects"
    for title, ours, theirs in (
        (f"auth: {name} with a token, calls/s against none", one, unguarded),
        (f"auth: {name} with {what}, calls/s against none", many, unguarded),
        (f"auth: {name} with {what}, calls/s against one of each", many, one),
    ):
        against = ratio(ours, theirs)
        yield Row(
            title,
            f"{statistics.median(ours):,.0f}/s",
            f"{statistics.median(theirs):,.0f}/s",
            f"{against:.2f}",
            "≥ 0.9",
            against >= 0.9,
        )


async def _add(data_dir: Path, *, tokens: int, projects: int) -> list[str]:
    """Add tokens of submitters in the project `default`, and projects with members.

    Return the text of each token.
    """
    store = await SqliteStore.open(data_dir / "jobs.db")
    now = datetime.now(UTC)
    made = [new_token() for _ in range(tokens)]
    for number in range(projects):
        members = dict.fromkeys((f"member-{number}-{each}" for each in range(_MEMBERS)), Role.SUBMITTER)
        await store.put_project(Project(name=f"project-{number}", members=members))
    given = (
        Token(
            id=each.id,
            digest=each.digest,
            name="bench",
            project="default",
            role=Role.SUBMITTER,
            created_at=now,
            created_by="benchmark",
            expires_at=now + timedelta(days=1),
        )
        for each in made
    )
    await asyncio.gather(*(store.add_token(token, purge_before=now) for token in given))
    await store.close()
    return [each.text for each in made]


if __name__ == "__main__":
    run_alone(measure)
