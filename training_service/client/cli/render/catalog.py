"""Algorithms and datasets as text."""

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from training_service._generated.catalog_service_pb2 import (
    Algorithm,
    AlgorithmParameter,
    Dataset,
    Source,
)
from training_service.client.cli.render import words


def name(found: Algorithm | Dataset) -> str:
    """Return only the name of the entry."""
    return words.printable(found.name)


def algorithm(found: Algorithm) -> str:
    """Return a line with the columns of an algorithm, separated by tabs."""
    parameters = " ".join(each.name for each in found.parameters)
    return _line(
        [found.name, *_source(found.source), found.framework or "-", parameters or "-", _meaning(found)]
    )


def algorithms_table(found: Iterable[Algorithm]) -> RenderableType:
    """Return a table of algorithms."""
    table = _table("ALGORITHM", "FROM", "PROJECT", "VERSION", "FRAMEWORK", "PARAMETERS", "DESCRIPTION")
    for each in found:
        _add(
            table,
            [
                *(each.name, *_source(each.source), each.framework or "-", str(len(each.parameters))),
                _meaning(each),
            ],
        )
    return table


def algorithm_page(found: Algorithm) -> RenderableType:
    """Return all facts about an algorithm."""
    table = _table("PARAMETER", "TYPE", "DEFAULT", "ALLOWED", "DESCRIPTION")
    for each in found.parameters:
        _add(table, _columns(each))
    facts = Text("\n".join(words.printable(each) for each in _facts(found)))
    return Group(facts, Text(), table) if found.parameters else facts


def parameters(found: Algorithm) -> str:
    """Return a line for each parameter of an algorithm, with its columns separated by tabs."""
    return "\n".join(_line(_columns(each)) for each in found.parameters)


def dataset(found: Dataset) -> str:
    """Return a line with the columns of a dataset, separated by tabs."""
    return _line([found.name, *_source(found.source), found.source.problem or found.uri, _files(found)])


def datasets_table(found: Iterable[Dataset]) -> RenderableType:
    """Return a table of datasets."""
    table = _table("DATASET", "FROM", "PROJECT", "VERSION", "URI", "FILES")
    for each in found:
        _add(table, [each.name, *_source(each.source), each.source.problem or each.uri, _files(each)])
    return table


def _facts(found: Algorithm) -> Iterator[str]:
    origin, project, version = _source(found.source)
    where = f" in project {project}" if found.source.project else ""
    yield f"{found.name} ({origin}{where}{f', version {version}' if found.source.version else ''})"
    if found.source.changed_by:
        yield f"changed by {found.source.changed_by}, {words.local_moment(found.source.changed_at)}"
    if found.source.problem:
        yield f"cannot be used: {found.source.problem}"
        return
    if found.description:
        yield found.description
    yield f"framework {found.framework}" + (f", code {found.code_version}" if found.code_version else "")
    if found.is_elastic:
        yield "elastic: a group goes on when it loses workers"
    for role in found.roles:
        yield f"role {role.name}: {words.count(role.instances, 'instance')}"
    if not found.needs_dataset:
        yield "needs no dataset"
    if found.free_parameters:
        yield "takes other parameters, too"


def _columns(parameter: AlgorithmParameter) -> list[str]:
    return [
        parameter.name,
        parameter.type,
        parameter.default if parameter.HasField("default") else "-",
        _allowed(parameter) or "-",
        parameter.description or "-",
    ]


def _allowed(parameter: AlgorithmParameter) -> str:
    bounds = [
        f"{sign} {getattr(parameter, field):.15g}"
        for field, sign in (("minimum", "≥"), ("exclusive_minimum", ">"), ("maximum", "≤"))
        if parameter.HasField(field)  # type: ignore[arg-type]
    ]
    return ", ".join(parameter.choices) or ", ".join(bounds)


def _source(source: Source) -> list[str]:
    return [source.origin, source.project or "-", str(source.version or "-")]


def _meaning(found: Algorithm) -> str:
    problem = found.source.problem
    return f"cannot be used: {problem}" if problem else found.description or "-"


def _files(found: Dataset) -> str:
    return " ".join(found.files) or "-"


def _line(columns: Iterable[str]) -> str:
    return "\t".join(map(words.printable, columns))


def _table(*names: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for each in names:
        table.add_column(each)
    return table


def _add(table: Table, columns: Iterable[str]) -> None:
    table.add_row(*(Text(words.printable(each)) for each in columns))
