"""Containers, parsed from the JSON of the engine. Pure functions, without I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from job_tracker.backends.shared.labels import (
    BASE_IMAGE,
    INSTANCES,
    PLAN_DIGEST,
    RANK,
    RESTARTS,
    ROLE,
    SUBMITTED_AT,
    group_named,
    number,
)
from job_tracker.domain import naming
from job_tracker.domain.group import GroupRef

_ENDED = frozenset({"exited", "dead", "removing"})
_NEVER = "0001-01-01"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container.

    `status` is the engine's status. The fields about the container's end are set only if it was inspected
    after its end.
    """

    id: str
    name: str
    labels: Mapping[str, str]
    status: str
    program: str
    created_at: float
    """The time of creation by the clock of the engine, in seconds since 1970.

    `ended_at` is in the same form.
    """
    exit_code: int | None = None
    was_out_of_memory: bool = False
    error: str = ""
    ended_at: float | None = None
    log_tail: str = ""

    @property
    def has_started(self) -> bool:
        """Whether the container's program runs or has run."""
        return self.status != "created" and (not self.has_ended or self.ended_at is not None)

    @property
    def has_ended(self) -> bool:
        """Whether the container has ended.

        If so, that is final, because the service never starts a container twice.
        """
        return self.status in _ENDED

    @property
    def progress(self) -> int:
        """A number for the container's state, which never decreases: 0 created, 1 started, 2 ended."""
        return 2 if self.has_ended else int(self.status != "created")

    @property
    def group(self) -> GroupRef | None:
        """The container's group; None if the labels are not labels of the service."""
        return group_named(self.labels, self.labels)

    @property
    def rank(self) -> int | None:
        """The container's rank; None if the labels or the name were not given by the service."""
        group, rank = self.group, number(self.labels.get(RANK))
        if group is None or rank is None:
            return None
        named = naming.instance_name(group.name, rank, self.labels.get(ROLE, naming.WORKER))
        return rank if self.name == named else None

    @property
    def restarts(self) -> int:
        """How often the container's rank was restarted, counting the restart that created this container."""
        return number(self.labels.get(RESTARTS)) or 0

    @property
    def instances(self) -> int | None:
        """The planned number of instances of the container's group; None without a valid label."""
        return number(self.labels.get(INSTANCES))

    @property
    def submission(self) -> str | None:
        """The time when the container's job was submitted, as text; None without the label.

        It distinguishes jobs that have the same id in different stores.
        """
        return self.labels.get(SUBMITTED_AT)

    @property
    def digest(self) -> str | None:
        """The digest of the plan from which the container was created; None without the label."""
        return self.labels.get(PLAN_DIGEST)


def listed(entry: Mapping[str, Any]) -> Container:
    """Parse an entry of a list of containers. Such an entry has no exit code."""
    return Container(
        id=entry["Id"],
        name=_name(*(entry.get("Names") or ("",))),
        labels=entry.get("Labels") or {},
        status=entry["State"],
        program=_program(entry.get("Image"), entry.get("ImageID"), entry.get("Labels")),
        created_at=float(entry["Created"]),
    )


def inspected(answer: Mapping[str, Any], log_tail: str = "") -> Container:
    """Parse the result of an inspection. `log_tail` is the end of the container's log."""
    state, config = answer["State"], answer["Config"]
    status = state["Status"]
    has_ended = status in _ENDED
    return Container(
        id=answer["Id"],
        name=_name(answer["Name"]),
        labels=config.get("Labels") or {},
        status=status,
        program=_program(config.get("Image"), answer.get("Image"), config.get("Labels")),
        created_at=_seconds(answer["Created"]) or 0.0,
        exit_code=state.get("ExitCode") if has_ended else None,
        was_out_of_memory=has_ended and bool(state.get("OOMKilled")),
        error=state.get("Error") or "",
        ended_at=_seconds(state.get("FinishedAt")) if has_ended else None,
        log_tail=log_tail,
    )


def _name(*names: str) -> str:
    # A name with a second slash is a link from another container.
    return next((name[1:] for name in names if name.count("/") == 1), "")


def _program(image: str | None, digest: str | None, labels: Mapping[str, str] | None) -> str:
    if base := (labels or {}).get(BASE_IMAGE):
        return base  # the image to which the files of an uploaded program were added
    return f"{image} ({digest})" if digest else image or ""


def _seconds(text: str | None) -> float | None:
    if not text or text.startswith(_NEVER):
        return None
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
