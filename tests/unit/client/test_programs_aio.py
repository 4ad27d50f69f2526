"""Uploads to services that cannot be reached."""

from pathlib import Path

import pytest

from training_service.client import AsyncTrainingClient, Unavailable
from training_service.client.stream_retry import StreamRetry


async def test_a_service_that_was_never_reached_is_not_waited_for_again(
    fast_failing: None, dead_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.setattr(
        StreamRetry, "pause_after", lambda *_: pytest.fail("the channel has retried the call")
    )
    async with AsyncTrainingClient(dead_address) as client:
        with pytest.raises(Unavailable, match="Connection refused"):
            await client.run(["python", "train.py"], folder=tmp_path)
