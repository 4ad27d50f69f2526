"""trainctl project list, set, delete, set-member and remove-member."""

from typing import Annotated, Any

import typer

from training_service.client.cli.commands.tokens import role_of
from training_service.client.cli.render import access
from training_service.client.cli.session import session_of

app = typer.Typer(no_args_is_help=True, help="Declare projects, and give roles in them.")

Project = Annotated[str, typer.Argument(metavar="PROJECT", help="The name of the project.")]
Member = Annotated[
    str,
    typer.Argument(metavar="MEMBER", help="The name of a token without a project, or of a certificate."),
]


@app.command("list")
def list_projects(context: typer.Context) -> None:
    """List the projects in which you have a role. Only admins see the members.

    In a pipe, each project is one line: name, your role, the number of its jobs that may wait, whether a file
    or the API declares it, and its members, separated by tabs.
    """
    session = session_of(context)
    with session.client() as client:
        session.output.show_all(client.access.projects(), access.project, access.projects_table)


@app.command("set")
def set_project(
    context: typer.Context,
    project: Project,
    max_queued: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="The largest number of its waiting jobs; 0: only the service's limits."
        ),
    ] = 0,
) -> None:
    """Declare a project, or replace its limit of waiting jobs. Its members stay."""
    session = session_of(context)
    with session.client() as client:
        found = client.access.set_project(project, max_queued=max_queued)
    session.output.show(found, access.project, access.project)


@app.command()
def delete(context: typer.Context, project: Project) -> None:
    """Delete a project, and revoke its tokens. All its jobs must have ended."""
    session = session_of(context)
    with session.client() as client:
        client.access.delete_project(project)
    session.output.note(f"deleted project {project}; its ended jobs stay until they are pruned")


@app.command()
def set_member(
    context: typer.Context,
    project: Project,
    member: Member,
    role: Annotated[Any, typer.Argument(parser=role_of, metavar="ROLE", help="viewer, submitter or admin.")],
) -> None:
    """Give a caller a role in a project. It replaces the role that the caller had there."""
    session = session_of(context)
    with session.client() as client:
        found = client.access.set_member(project, member, role)
    session.output.show(found, access.project, access.project)


@app.command()
def remove_member(context: typer.Context, project: Project, member: Member) -> None:
    """Remove a caller's role in a project. Open streams that need this role end."""
    session = session_of(context)
    with session.client() as client:
        found = client.access.remove_member(project, member)
    session.output.show(found, access.project, access.project)
