"""trainctl report-key list, rotate and remove."""

from typing import Annotated

import typer

from training_service.client.cli.output import remark
from training_service.client.cli.render import access
from training_service.client.cli.session import session_of

app = typer.Typer(
    no_args_is_help=True,
    help="List, rotate and remove the keys that sign the tokens of reports. For operators.",
)


@app.command("list")
def list_keys(context: typer.Context) -> None:
    """List the keys, sorted by id.

    In a pipe, each key is one line: id, state (current, replaced or removed), the number of live attempts
    that may use it, creator, and the times when it was made, replaced and removed, separated by tabs.
    """
    session = session_of(context)
    with session.client() as client:
        session.output.show_all(client.access.report_keys(), access.report_key, access.report_keys_table)


@app.command()
def rotate(context: typer.Context) -> None:
    """Make a new key for the attempts that begin from now on.

    Live attempts keep the key that they have. The replaced key is deleted when the last of these attempts has
    ended.
    """
    session = session_of(context)
    with session.client() as client:
        made = client.access.rotate_report_key()
    session.output.show(made, access.report_key, access.report_key)
    remark(
        f"attempts that begin now use key {made.id}; `trainctl report-key list` shows how many live attempts "
        "use older keys"
    )


@app.command()
def remove(
    context: typer.Context,
    key_id: Annotated[
        int, typer.Argument(metavar="ID", min=1, help="The key's id, as in `report-key list`.")
    ],
) -> None:
    """Refuse reports with the tokens of a replaced key at once, for example after a leak.

    Live attempts that use the key continue, but their reports by calls are refused. The next attempt of such
    a job has a newer key.
    """
    session = session_of(context)
    with session.client() as client:
        removed = client.access.remove_report_key(key_id)
    session.output.show(removed, access.report_key, access.report_key)
    if removed.attempts:
        remark(f"{removed.attempts} live attempts can no longer report by calls; their training goes on")
