"""trainctl logs."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from training_service.client.cli.commands.arguments import Job
from training_service.client.cli.commands.lives import duration
from training_service.client.cli.render.ranks import RankPrefixes
from training_service.client.cli.session import session_of


def logs(
    context: typer.Context,
    job: Job,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for what is still to come, until the job ends.")
    ] = False,
    rank: Annotated[int, typer.Option(min=0, help="Which process; 0 is the master.")] = 0,
    all_ranks: Annotated[
        bool, typer.Option("--all-ranks", help="Every process, by time; each line begins with its rank.")
    ] = False,
    attempt: Annotated[
        int, typer.Option(min=0, help="Which attempt; 0 is the last, and with -f those that follow.")
    ] = 0,
    tail: Annotated[
        int | None, typer.Option(min=0, help="Begin with the last so many lines, of each process.")
    ] = None,
    since: Annotated[
        timedelta | None,
        typer.Option(parser=duration, metavar="TIME", help="Begin with what was printed so long ago."),
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="Each line begins with the time at which it was printed.")
    ] = False,
) -> None:
    """Show what one process of a job printed, exactly as it printed it, or what all of them did.

    The logs of a job are kept as long as the job. If the service goes away in the middle, this goes on
    after the last line when it is back; no line is lost or shown twice.
    """
    session = session_of(context)
    prefixes = RankPrefixes()
    with session.client() as client:
        for chunk in client.logs(
            job,
            rank=rank,
            all_ranks=all_ranks,
            attempt=attempt,
            follow=follow,
            tail_lines=tail,
            since=None if since is None else datetime.now(UTC) - since,
            timestamps=timestamps,
        ):
            session.output.show_text(chunk, prefixes.prefixed(chunk) if all_ranks else chunk.text)
