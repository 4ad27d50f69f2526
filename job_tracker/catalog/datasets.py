"""Where the versions of datasets are."""

from pydantic import Field, model_validator

from job_tracker.common.config import Config


class Dataset(Config):
    """Where the versions of a dataset are."""

    uri: str = Field(
        description="folder of a version, an fsspec URI; {dataset_id} and {version} are filled in"
    )
    files: tuple[str, ...] = Field(
        # Configurations that name no files rely on these two being looked for.
        default=("examples.csv", "labels.csv"),
        description="what a version must hold before a job may train on it",
    )

    @model_validator(mode="after")
    def _uri_can_be_filled_in(self) -> "Dataset":
        try:
            self.folder("1", "v")
        except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
            raise ValueError(
                f"uri: only {{dataset_id}} and {{version}} can be filled in ({error})"
            ) from error
        return self

    def folder(self, dataset_id: str, version: str) -> str:
        """The URI of one version's folder."""
        return self.uri.format(dataset_id=dataset_id, version=version)
