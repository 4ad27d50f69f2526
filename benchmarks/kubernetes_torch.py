"""A real training on three pods, from submission to model, compared with the same pods made by hand.

Image, data, parameters and pods are the same; the storage is a folder of this machine. By hand, the time runs
from the start of `kubectl apply`, which creates the Service and the three pods, until all pods have
succeeded. The pods are checked 20 times a second. With the service, the time runs from Train until
WatchTraining reports success. By then the service has also kept the logs and stopped the group.
"""

import asyncio
import itertools
import json
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.kubernetes_support import (
    Bare,
    Cluster,
    cluster,
    new_namespace,
    or_left_out,
    path_of,
    planned,
    service_on,
)
from benchmarks.support import Row, interleaved, make_dataset, ratio, request, run_alone, workspace
from job_tracker.backends.kubernetes.labels import Manifest
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub

INSTANCES = 3
_TARGET = 1.1
_CLAIM = "bench-storage"
_LOOK_SECONDS = 0.05
_RECIPE = """
image = "intent-classification:0.1.0"
command = ["python", "-m", "intent_classification.train"]
run_as_user = 10001
fs_group = 10001
volumes = [{{ claim = "{claim}", mount_path = "{storage}" }}]
"""
_bare_ids = itertools.count(1_000_000)


def _measure(quick: bool) -> list[Row]:
    rounds, epochs = (3, "3") if quick else (7, "5")
    with cluster(node=True) as fresh, workspace() as folder:
        namespace = new_namespace(fresh)
        fresh.load_images()
        recipe = _RECIPE.format(claim=_CLAIM, storage=_make_storage(fresh, folder, namespace))
        with (
            service_on(fresh, folder, namespace, capacity=INSTANCES, recipe=recipe) as server,
            server.stub() as stub,
        ):
            ours, theirs = interleaved(
                rounds,
                lambda: _under_the_service(stub, epochs),
                lambda: asyncio.run(_by_hand(fresh, namespace, recipe, folder / "storage", epochs)),
            )
    times = ratio(ours, theirs)
    return [
        Row(
            f"pods-torch: {INSTANCES} pods, submit → model trained, against kubectl",
            f"{statistics.median(ours):.2f} s",
            f"{statistics.median(theirs):.2f} s",
            f"{times:.2f}",
            f"≤ {_TARGET}",
            times <= _TARGET,
        )
    ]


measure = or_left_out(_measure, "pods-torch")


def _make_storage(fresh: Cluster, folder: Path, namespace: str) -> Path:
    """Make a folder with the data, and a volume by which pods read and write this folder.

    Return the folder's path, which is the same for the service and pods.
    """
    make_dataset(folder, real=True)
    storage = folder / "storage"
    folder.chmod(0o755)
    for writable in (storage, storage / "models", storage / "checkpoints"):
        writable.mkdir(exist_ok=True)
        writable.chmod(0o777)
    common = {"storageClassName": "by-hand", "accessModes": ["ReadWriteOnce"]}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": namespace},
        "spec": {
            **common,
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": str(storage)},
            "claimRef": {"name": _CLAIM, "namespace": namespace},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": _CLAIM, "namespace": namespace},
        "spec": {**common, "resources": {"requests": {"storage": "1Gi"}}},
    }
    fresh.kubectl("apply", "-f", "-", stdin=json.dumps(_list(volume, claim)))
    return storage


def _list(*items: Manifest) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _under_the_service(stub: TrainingServiceStub, epochs: str) -> float:
    submitted = time.perf_counter()
    job_id = stub.Train(request(PARALLEL_INSTANCES=str(INSTANCES), EPOCHS=epochs)).job_id
    for status in stub.WatchTraining(pb.WatchTrainingRequest(job_id=job_id)):
        last = status
    if last.status != pb.succeed:
        raise RuntimeError(f"job {job_id} did not succeed: {last.message}")
    return time.perf_counter() - submitted


async def _by_hand(fresh: Cluster, namespace: str, recipe: str, storage: Path, epochs: str) -> float:
    plan = planned(next(_bare_ids), INSTANCES, namespace, recipe=recipe, storage=storage, EPOCHS=epochs)
    assert plan.service
    objects = json.dumps(_list(plan.service, *plan.pods))
    async with Bare.connected(fresh) as bare:
        submitted = time.perf_counter()
        await asyncio.to_thread(fresh.kubectl, "apply", "-f", "-", stdin=objects)
        for pod in plan.pods:
            await _until_succeeded(bare, f"{path_of(namespace)}/pods/{pod['metadata']['name']}")
        seconds = time.perf_counter() - submitted
    await asyncio.to_thread(fresh.kubectl, "delete", "-f", "-", stdin=objects)
    return seconds


async def _until_succeeded(bare: Bare, path: str) -> None:
    async with asyncio.timeout(300):
        while (phase := (await bare.call("GET", path))["status"]["phase"]) != "Succeeded":
            if phase == "Failed":
                raise RuntimeError(f"{path} failed")
            await asyncio.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    run_alone(measure)
