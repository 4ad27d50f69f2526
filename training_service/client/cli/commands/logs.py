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
        bool, typer.Option("--follow", "-f", help="Wait for more output until the job ends.")
    ] = False,
    rank: Annotated[int, typer.Option(min=0, help="The rank to show; 0 is the master.")] = 0,
    all_ranks: Annotated[
        bool, typer.Option("--all-ranks", help="Show all ranks, by time; each line starts with its rank.")
    ] = False,
    attempt: Annotated[
        int, typer.Option(min=0, help="The attempt to show; 0 is the last, and with -f also later ones.")
    ] = 0,
    tail: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Start with the last N lines of each rank.")
    ] = None,
    since: Annotated[
        timedelta | None,
        typer.Option(parser=duration, metavar="TIME", help="Only output of the last TIME, such as 10m."),
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="Start each line with the time at which it was printed.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="On a terminal, keep escape sequences and control characters.")
    ] = False,
) -> None:
    """Show the output of one rank of a job, or of all ranks.

    On a terminal, escape sequences and control characters are removed unless --raw is given. A pipe or file
    gets the exact output.

    Logs are kept as long as their job. If the service goes away, this command waits for it and continues
    after the last line: no line is lost or repeated.
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
