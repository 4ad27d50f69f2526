"""The queue of a service becomes the beginning of a simulation."""

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from job_tracker.scheduling.model import Allocation, Expected, Limit, Part, PreemptionRules, Promise
from job_tracker.scheduling.simulation.attempts import Saving
from job_tracker.scheduling.simulation.cluster import BEGIN
from job_tracker.scheduling.simulation.trace import Begun
from training_service._generated import training_service_pb2 as pb
from training_service.client.cli.live_queue import OTHERS, live_queue

GPU = "nvidia.com/gpu"
SNAPSHOT = pb.GetQueueSnapshotResponse(
    taken_at=Timestamp(seconds=1000),
    flavors=[
        pb.SnapshotFlavor(
            name="a100",
            capacity={"instances": 4, GPU: 32},
            machines=[pb.SnapshotMachine(number=1, capacity={GPU: 32}, is_closed=True)],
            follows_machines=True,
        )
    ],
    queues=[
        pb.SnapshotQueue(name="team", weight=1),
        pb.SnapshotQueue(
            name="vision",
            parent="team",
            weight=3,
            max_running=7,
            quotas=[pb.SnapshotQuota(flavor="a100", resource=GPU, nominal=8, lend=2)],
            usage=[pb.SnapshotUsage(flavor="a100", resource=GPU, amount=5.5)],
            rules=pb.SnapshotRules(by_priority=True, max_preemptions=3, resize_period_seconds=60),
        ),
    ],
    shapes=[pb.SnapshotShape(parts=[pb.SnapshotPart(count=2, each={"instances": 1, GPU: 8})])],
    jobs=[
        pb.SnapshotJob(
            queue="vision",
            submitted_at=Timestamp(seconds=100),
            admitted_at=Timestamp(seconds=200),
            expected_seconds=300,
            expected_high_seconds=350,
            flavor="a100",
            machines=[1, 1],
            saved_at=Timestamp(seconds=950),
            startup_seconds=20,
            preemptions=2,
        ),
        pb.SnapshotJob(
            job_id=7,
            project="vision",
            queue="vision",
            priority=5,
            submitted_at=Timestamp(seconds=400),
            flavor="a100",
            promised_start=Timestamp(seconds=1700),
            wanted_flavor="a100",
        ),
    ],
    omitted_jobs=3,
    reservations=50,
    overtake_limit=2,
    usage_half_life=Duration(seconds=60),
)


def test_jobs_wait_and_run_since_before_the_beginning() -> None:
    found = live_queue(SNAPSHOT, assumed=3600)
    running, waiting = found.jobs
    assert running.begun == Begun(-800, Allocation(flavor="a100", nodes=("1", "1")), saved_at=-50)
    assert (running.saving, running.preemptions) == (Saving(startup=20), 2)
    assert running.run == 1200, "it runs longer than expected: twice as long, again and again"
    assert (running.project, running.said) == (OTHERS, Expected(median=300, high=350))
    assert (waiting.submitted_at, waiting.run, waiting.said) == (-600, 3600, None)
    assert waiting.promise == Promise(700, "a100")
    assert (running.flavor, waiting.flavor) == ("", "a100")
    assert (waiting.project, waiting.priority, waiting.instances) == ("vision", 5, 2)
    assert waiting.parts == (Part(2, {"instances": 1, GPU: 8}),)
    assert (found.running, found.unknown, found.omitted) == (1, 1, 3)


def test_queues_machines_and_options_are_those_of_the_service() -> None:
    cluster = live_queue(SNAPSHOT, assumed=3600).cluster
    assert cluster.resources == {"instances": 4, GPU: 32}
    assert [(node.name, node.is_open) for node in cluster.flavors[0].nodes] == [("1", False)]
    assert cluster.flavors[0].is_followed
    vision = cluster.queues["vision"]
    assert (vision.parent, vision.weight, vision.max_running) == ("team", 3, 7)
    assert vision.preemption == PreemptionRules(
        by_priority=True, reclaim=False, max_preemptions=3, resize_period=60
    )
    assert cluster.queues["team"].preemption == PreemptionRules(), "of a service without such rules"
    assert vision.limits == {"a100": {GPU: Limit(nominal=8, lend=2)}}
    assert cluster.usage["vision"].at == BEGIN
    assert cluster.usage["vision"].amounts == {"a100": {GPU: 5.5}}
    assert (cluster.options.reservations, cluster.options.overtake_limit) == (50, 2)
    assert cluster.options.half_life == 60
