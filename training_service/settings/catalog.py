"""Settings of the catalog: which algorithms and datasets there are."""

from typing import Annotated

from pydantic import Field

from job_tracker.common.config import Config


class CatalogSettings(Config):
    """The sources of algorithms and datasets. See docs/catalog.md."""

    replace_shipped: bool = Field(
        default=False,
        description="Let each of the tables `algorithms` and `datasets` that has entries replace the "
        "built-in entries. Otherwise it adds to them, and replaces only those with the same name.",
    )
    declared_algorithms: bool | None = Field(
        default=None,
        description="Take algorithms by the API: operators, and in their projects admins, can then run any "
        "code as jobs. Unset: as `programs.enabled`.",
    )
    dataset_uris: tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...] = Field(
        default=(),
        description="Beginnings of the URIs that datasets declared by the API may have, such as "
        "`s3://data/`. Those in the folder `versionedDatasets` of the storage are always allowed.",
    )
