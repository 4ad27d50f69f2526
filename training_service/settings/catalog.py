"""Settings of the catalog: which algorithms and datasets there are."""

from typing import Annotated

from pydantic import Field

from job_tracker.common.config import Config


class CatalogSettings(Config):
    """The sources of algorithms and datasets. See docs/catalog.md."""

    replace_shipped: bool = Field(
        default=False,
        description="Whether a table `algorithms` or `datasets` that has entries replaces all built-in "
        "entries of this table. If false, its entries add to the built-in entries, and replace only entries "
        "with the same name.",
    )
    declared_algorithms: bool | None = Field(
        default=None,
        description="Accept algorithms through the API. Then operators, and admins in their projects, can "
        "run any code as jobs. Unset: the value of `programs.enabled`.",
    )
    dataset_uris: tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...] = Field(
        default=(),
        description="Allowed beginnings of the URIs of datasets that are declared through the API, such as "
        "`s3://data/`. URIs in the folder `versionedDatasets` of the storage are always allowed.",
    )
