"""trainctl logs."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from training_service.client.cli.commands.arguments import Job
from training_service.client.cli.commands.policy_options import duration
from training_service.client.cli.render.ranks import RankPrefixes
from training_service.client.cli.render.terminal import TerminalText
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
    raw: Annotated[
        bool, typer.Option("--raw", help="On a terminal, keep escape sequences and control characters.")
    ] = False,
) -> None:
    """Show what one process of a job printed, or what all of them did.

    A terminal gets no escape sequences or control characters of a job unless --raw is given; a pipe or a file
    gets exactly what was printed.

    The logs of a job are kept as long as the job. If the service goes away in the middle, this goes on
    after the last line when it is back; no line is lost or shown twice.
    """
    session = session_of(context)
    clean = session.output.on_terminal and not raw
    prefixes = RankPrefixes()
    terminal_text: defaultdict[tuple[int, int], TerminalText] = defaultdict(TerminalText)
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
            text = chunk.text
            if clean:
                text = terminal_text[chunk.attempt, chunk.rank].cleaned(text)
            session.output.show_text(chunk, prefixes.prefixed(chunk.rank, text) if all_ranks else text)
