"""The image of an uploaded program: the default image, the image of an environment, or the image that the
request names.
"""

import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from job_tracker.backends.shared.programs import DEFAULT_IMAGE
from job_tracker.catalog.request_limits import RequestLimits
from job_tracker.catalog.syntax import Image
from job_tracker.common.printable import quoted
from job_tracker.common.validation import explain

_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@*-]{0,511}|\*[A-Za-z0-9._:@*-]{0,511}")
_NAME = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$"
_IMAGE: TypeAdapter[str] = TypeAdapter(Image)
_SHOWN = 20


def _pattern(pattern: str) -> str:
    registry, slash, _ = pattern.partition("/")
    if not _PATTERN.fullmatch(pattern) or (slash and "*" in registry):
        raise ValueError(
            f"{quoted(pattern)} is not a pattern of images; allowed: an image in which * stands for "
            "characters other than / : @, such as registry.example.com/team/*:*, with no * before the first /"
        )
    return pattern


ImagePattern = Annotated[str, AfterValidator(_pattern)]


class ProgramImages(RequestLimits):
    """The settings of a backend that runs uploaded programs in images."""

    program_image: Image = Field(
        default=DEFAULT_IMAGE,
        description="Image in which uploaded programs run. It contains the interpreter and the packages that "
        "the programs need.",
    )
    program_environments: dict[Annotated[str, Field(pattern=_NAME)], Image] = Field(
        default={},
        description="Other images for uploaded programs. A request chooses an image by its name here "
        "(`trainctl run --environment NAME`).",
    )
    program_image_patterns: tuple[ImagePattern, ...] = Field(
        default=(),
        description="Patterns of the images that requests may name (`trainctl run --image REF`). * stands "
        "for any characters other than / : @. For example, registry.example.com/team/*:* allows the images "
        "in this folder that have a tag. A pattern must match the whole text of the image. "
        "Empty: requests may name no image.",
    )

    def image_of(self, backend: str, image: str, environment: str) -> str:
        """Return the image of a program that names an image, an environment or nothing.

        `backend` is the name of the configuration table with these settings. Error messages name this table.
        Raises ValueError if the image is not allowed, or the environment is not configured.
        """
        if image:
            return self._allowed(backend, image)
        if not environment:
            return self.program_image
        found = self.program_environments.get(environment)
        if found is None:
            raise ValueError(not_an_environment(backend, environment, self.program_environments))
        return found

    def _allowed(self, backend: str, image: str) -> str:
        try:
            _IMAGE.validate_python(image)
        except ValidationError as error:
            raise ValueError(explain(error)) from error
        setting = f"{backend}.program_image_patterns"
        if not self.program_image_patterns:
            raise ValueError(
                f"{quoted(image)} is not allowed: requests to this service may not name images; leave it "
                f"out, or ask the operator for a pattern in {setting}"
            )
        if not any(_matches(pattern, image) for pattern in self.program_image_patterns):
            known = ", ".join(self.program_image_patterns[:_SHOWN])
            more = ", …" if len(self.program_image_patterns) > _SHOWN else ""
            raise ValueError(
                f"{quoted(image)} is not allowed; allowed ({setting}, where * stands for characters other "
                f"than / : @): {known}{more}; choose one of these, or ask the operator for another pattern"
            )
        return image


def not_an_environment(backend: str, name: str, known: Iterable[str]) -> str:
    """Return the error message for `name`, which is not the name of a configured environment of programs."""
    names = ", ".join(sorted(known)) or "none"
    return f"{quoted(name)} doesn't exist; configured ({backend}.program_environments): {names}"


def _matches(pattern: str, image: str) -> bool:
    """Return whether the pattern matches the whole image."""
    return re.fullmatch("[^/:@]*".join(map(re.escape, re.split(r"\*+", pattern))), image) is not None
