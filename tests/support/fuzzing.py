"""The size of tests that try random input: short in the gate, long with scripts/fuzz."""

import os

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("FUZZ_TIMES", "1"))
"""The multiple of the gate's number of examples."""
NO_LIMITS = {
    f"{kind}_rate": 0 for kind in ("submit", "change", "read", "list", "stream", "report", "failed_token")
}
"""Settings `limits` of a service that long runs do not exhaust."""
_SUPPRESSED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]


def fuzzed(examples: int) -> settings:
    """Return the settings of a test with random input, with this number of examples in the gate."""
    return settings(max_examples=examples * TIMES, suppress_health_check=_SUPPRESSED, deadline=None)
