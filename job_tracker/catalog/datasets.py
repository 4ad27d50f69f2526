"""Locations of datasets."""

from pydantic import Field, model_validator

from job_tracker.common.config import Config
from job_tracker.common.printable import quoted


class Dataset(Config):
    """The location of a dataset's versions."""

    uri: str = Field(
        description="fsspec URI of the folder of one version. `{dataset_id}` and `{version}` are filled in."
    )
    files: tuple[str, ...] = Field(
        # The default is not empty: configurations without `files` rely on the check for these two files.
        default=("examples.csv", "labels.csv"),
        description="Files that the folder of a version must contain. If a version lacks one of them, jobs "
        "with this version are refused.",
    )

    @model_validator(mode="after")
    def _uri_can_be_filled_in(self) -> "Dataset":
        try:
            self.folder("1", "v")
        except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
            raise ValueError(
                f"uri: {quoted(self.uri)} is not allowed ({error}); only {{dataset_id}} and {{version}} can "
                "be filled in"
            ) from error
        return self

    def folder(self, dataset_id: str, version: str) -> str:
        """Return the URI of one version's folder."""
        return self.uri.format(dataset_id=dataset_id, version=version)
