"""The cause of a failure is found in the log of a pod, even if a long report of a launcher follows it."""

from job_tracker.domain.diagnosis import Category
from tests.support.backends import KubernetesGroups, seen
from tests.support.jobs import job
from tests.support.programs import UNTIL_READ

PROGRAM = """
import sys
try:
    open("/data/no-such-file")
except OSError:
    import traceback
    traceback.print_exc()
for number in range(100):
    print(f"a report of a launcher, line {number} of many that follow the error", file=sys.stderr)
until_read(2)
sys.exit(1)
"""


async def test_the_cause_is_found_before_what_the_kubelet_keeps(world: KubernetesGroups) -> None:
    world.add("program", "python3", "-c", f"{UNTIL_READ}{PROGRAM}")
    backend, failing = world.open(), job(instances=2)
    await backend.launch(failing)
    found = await seen(backend, failing.group, lambda each: each.first_failure is not None)
    assert found.first_failure is not None
    assert found.first_failure.category is Category.CRASHED
    assert (
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/no-such-file'"
        in found.first_failure.cause
    )
