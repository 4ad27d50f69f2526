"""Lag of the event loop: the delay of a due timer. All other work in the loop has the same delay."""

import asyncio

from prometheus_client import CollectorRegistry, Histogram

_PERIOD = 0.5
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


class LoopMetrics:
    """Measures the lag of the running event loop about twice a second."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag = Histogram(
            "training_service_event_loop_lag_seconds",
            "Delay of a due timer in the event loop",
            buckets=_SECONDS,
            registry=registry,
        )

    async def measure(self) -> None:
        """Observe the lag of the event loop until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _PERIOD
            await asyncio.sleep(_PERIOD)
            self._lag.observe(max(0.0, loop.time() - due))
