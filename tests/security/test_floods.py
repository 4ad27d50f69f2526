"""A caller that floods the service is refused. Meanwhile, another caller gets its answers."""

import asyncio
import time
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.support.access import Sent, bearer, failure
from tests.support.patience import PATIENCE
from tests.support.server import server
from training_service._generated import training_service_pb2 as pb
from training_service._generated.access_service_pb2 import Role
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub
from training_service.client import TrainingClient

if TYPE_CHECKING:
    from tests.support.server import Server
else:
    Server = Any

__all__ = ["server"]

RATE, BURST, STREAMS = 2, 30, 5
LIMITS = (
    *("-s", "auth.loopback=token"),
    *("-s", f"limits.read_rate={RATE}", "-s", f"limits.read_burst={BURST}"),
    *("-s", f"limits.open_streams_of_caller={STREAMS}"),
)
AT_ONCE, CALLS_OF_EACH = 32, 20
OK, EXHAUSTED = grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED


class Someone:
    """A caller with a connection of its own."""

    def __init__(self, address: str, token: str) -> None:
        self._sent: Sent = bearer(token)
        self.channel = grpc.aio.insecure_channel(address)
        self._stub = TrainingServiceStub(self.channel)

    async def read(self) -> grpc.StatusCode:
        request = pb.GetTrainingStatusRequest(job_id=1)
        return (await failure(self._stub.GetTrainingStatus(request, metadata=self._sent, timeout=PATIENCE)))[
            0
        ]

    def watch(self) -> Any:
        return self._stub.WatchTraining(
            pb.WatchTrainingRequest(job_id=1), metadata=self._sent, timeout=PATIENCE
        )


async def test_a_flood_of_one_caller_does_not_refuse_another(
    monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    server.start(*LIMITS).close()
    token = (server.data_dir / "operator-token").read_text().splitlines()[0]
    monkeypatch.setenv("TRAINING_SERVICE_TOKEN", token)
    with TrainingClient(server.address) as operator:
        operator.submit("program", "1", "v1", parameters={"RUN_SECONDS": "forever"})
        made = [operator.access.create_token(name, role=Role.operator) for name in ("eve", "ada")]
        eve, ada = (Someone(server.address, each.text) for each in made)
    async with eve.channel, ada.channel:
        begun = time.monotonic()

        async def flood() -> list[grpc.StatusCode]:
            return [await eve.read() for _ in range(CALLS_OF_EACH)]

        floods = asyncio.gather(*(flood() for _ in range(AT_ONCE)))
        answers = [await ada.read() for _ in range(BURST // 2)]
        codes = [code for each in await floods for code in each]
        seconds = time.monotonic() - begun
        assert set(answers) == {OK}
        assert set(codes) == {OK, EXHAUSTED}
        assert codes.count(OK) <= BURST + RATE * seconds + 1

        watches = [eve.watch() for _ in range(3 * STREAMS)]
        opened = await asyncio.gather(*(watch.read() for watch in watches), return_exceptions=True)
        assert sum(isinstance(each, grpc.aio.AioRpcError) for each in opened) == 2 * STREAMS
        assert await failure(ada.watch()) == (OK, "")
        for watch in watches:
            watch.cancel()
