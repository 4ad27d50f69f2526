"""trainctl token create, list and revoke."""

from datetime import timedelta
from typing import Annotated, Any

import typer

from training_service._generated.access_service_pb2 import Role
from training_service.client.cli.commands.policy_options import duration
from training_service.client.cli.render import access
from training_service.client.cli.session import session_of

_ROLES = [name for name in Role.keys() if name != "no_role"]  # noqa: SIM118  # the enum is not iterable

app = typer.Typer(no_args_is_help=True, help="Create, list and revoke tokens.")


def role_of(word: str) -> Role.ValueType:
    """Parse a role. Raises BadParameter if there is no such role."""
    if word not in _ROLES:
        raise typer.BadParameter(f"'{word}' is not one of {', '.join(_ROLES)}")
    return Role.Value(word)


@app.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the caller.")],
    role: Annotated[
        Any,
        typer.Option(
            parser=role_of,
            metavar="ROLE",
            help="viewer, submitter or admin of the --project, or operator. Default: the roles that NAME has "
            "as a member of projects.",
        ),
    ] = None,
    expires: Annotated[
        timedelta,
        typer.Option(parser=duration, metavar="TIME", help="Time until it expires; 0: never."),
    ] = "90d",  # type: ignore[assignment]  # Typer parses it
) -> None:
    """Create a token, and print it. It cannot be shown again."""
    session = session_of(context)
    role = Role.no_role if role is None else role
    in_project = role not in (Role.no_role, Role.operator)
    if in_project and not session.project:
        raise typer.BadParameter("the role needs a project; give --project", param_hint="--role")
    with session.client() as client:
        made = client.access.create_token(
            name, project=session.project if in_project else "", role=role, lifetime=expires or None
        )
    session.output.show(made, access.new_token, access.new_token)
    session.output.note(f"keep it secret: it is not shown again. Its id is {made.token.id}")


@app.command("list")
def list_tokens(context: typer.Context) -> None:
    """List the tokens of the --project.

    Without --project, operators see all tokens, and other users the tokens of their default project.

    In a pipe, each token is one line: id, name, project, role, state, creator, and the times of creation,
    expiry and last use, separated by tabs.
    """
    session = session_of(context)
    with session.client() as client:
        project = session.project
        if not project and not (who := client.access.whoami()).is_operator:
            project = who.default_project
        session.output.show_all(client.access.tokens(project), access.token, access.tokens_table)


@app.command()
def revoke(
    context: typer.Context,
    token_id: Annotated[str, typer.Argument(metavar="ID", help="The token's id, as in `token list`.")],
) -> None:
    """Revoke a token, for ever. Streams that were opened with it end."""
    session = session_of(context)
    with session.client() as client:
        revoked = client.access.revoke_token(_id_of(token_id))
    session.output.show(revoked, access.token, access.token)


def _id_of(text: str) -> str:
    """Return the id in the text, which is an id or, by mistake, a whole token.

    The secret part of a token must not be sent to the service.
    """
    parts = text.split("_", 2)
    return parts[1] if len(parts) == 3 and parts[0] == "tst" else text
