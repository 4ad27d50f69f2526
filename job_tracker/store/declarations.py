"""The protocol for algorithms, datasets and queues that callers have declared through the API."""

from collections.abc import Sequence
from typing import Final, Protocol

from job_tracker.domain.audit import AuditEvent
from job_tracker.domain.declaration import Declaration, DeclarationLimits

DEFAULT_LIMITS: Final = DeclarationLimits()


class DeclarationStore(Protocol):
    """Stores declarations, which services keep in memory.

    All changes of a store are numbered, including removals. A change names the latest number that its writer
    has read, and is refused if there was another change since then. So a writer can check its declaration
    against all others, and none of the others changes before the declaration is stored.
    """

    async def declarations_version(self) -> int:
        """Return the number of the last change; 0 before the first change.

        The deletion of a project that has declarations is a change, too.
        """
        ...

    async def declarations(self) -> tuple[int, Sequence[Declaration]]:
        """Return the number of the last change, and all declarations, sorted by kind, project and name."""
        ...

    async def put_declaration(
        self,
        declaration: Declaration,
        seen: int,
        limits: DeclarationLimits = DEFAULT_LIMITS,
        *,
        project_must_be_stored: bool = False,
        event: AuditEvent | None = None,
    ) -> bool:
        """Store the declaration as the change with the number `seen` + 1, which becomes its version.

        Return False, and change nothing, if `seen` is not the number of the last change. Raises
        TooManyDeclarations, and changes nothing, if a new declaration would exceed the limits. Raises
        UnknownProject if `project_must_be_stored` and the declaration's project is not stored.
        """
        ...

    async def remove_declaration(
        self, declaration: Declaration, seen: int, *, event: AuditEvent | None = None
    ) -> bool:
        """Remove the declaration of this kind, project and name as the change with the number `seen` + 1.

        Return False, and change nothing, if there is no such declaration, or if `seen` is not the number of
        the last change.
        """
        ...
