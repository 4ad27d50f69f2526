"""Uploaded programs in pods and containers: their default image, and the advice in their diagnoses."""

from collections.abc import Mapping
from dataclasses import replace

from job_tracker.domain.diagnosis import Category, Diagnosis

DEFAULT_IMAGE = "training-program:0.1.0"
"""An image with Python, PyTorch and gRPC, which scripts/images builds."""

NOT_FOUND = (
    "Name a file of the uploaded folder with ./ before it, or a program {place}; a script also needs its "
    "interpreter."
)
NOT_EXECUTABLE = (
    "Make the file executable (chmod +x) with a #! line, or name its interpreter first, for example `python "
    "FILE`."
)
_OF_IMAGE = (
    "Check the image that the request names, or else {backend}.program_image or program_environments in the "
    "service's configuration, and that the registry can be reached. scripts/images builds the default image."
)
_RESOLUTIONS: Mapping[Category, str] = {
    Category.COMMAND_NOT_FOUND: NOT_FOUND.replace(
        "{place}", "of its image, by default {backend}.program_image"
    ),
    Category.COMMAND_NOT_EXECUTABLE: NOT_EXECUTABLE,
    Category.IMAGE_PULL_FAILED: _OF_IMAGE,
    Category.INVALID_IMAGE: _OF_IMAGE,
}


def for_program(diagnosis: Diagnosis, backend: str) -> Diagnosis:
    """Return the diagnosis, with the resolution for uploaded programs if its category has such a resolution.

    The backend's own resolutions are about the configuration of algorithms. `backend` is the name of the
    backend's table of settings.
    """
    resolution = _RESOLUTIONS.get(diagnosis.category)
    return replace(diagnosis, resolution=resolution.format(backend=backend)) if resolution else diagnosis


def files_damaged(problem: str) -> Diagnosis:
    """Return the diagnosis of a program whose files are incomplete."""
    return Diagnosis(
        category=Category.LAUNCH_FAILED,
        summary="The files of the job's program are not complete on the service's disk.",
        resolution="Submit the program again: trainctl run uploads what is missing.",
        detail=problem,
    )
