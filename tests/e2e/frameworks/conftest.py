import pytest

from tests.e2e.frameworks.cases import Case, make_environment


@pytest.fixture
def environment(case: Case) -> None:
    """Make the Python environment of the case, before the time of the test begins (`func_only`)."""
    make_environment(case)
