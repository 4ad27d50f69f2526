"""The cluster, for the tests that need one."""

from tests.support.cluster_fixtures import (
    cluster,
    namespace,
    program_image,
    pytest_collection_finish,
    pytest_runtest_makereport,
)

__all__ = [
    "cluster",
    "namespace",
    "program_image",
    "pytest_collection_finish",
    "pytest_runtest_makereport",
]
