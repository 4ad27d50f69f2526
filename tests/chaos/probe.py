"""Measures continuously how long the service takes to answer."""

import threading

from job_tracker.common.clock import boot_seconds
from tests.chaos.clients import Clients
from training_service.client.errors import TrainingServiceError

_PAUSE = 0.1


class Probe:
    """Requests the status of the newest job, over and over."""

    def __init__(self, clients: Clients) -> None:
        self.spans: list[tuple[float, float]] = []
        """The begin and end of each call, by the boot clock."""
        self._clients = clients
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)

    def start(self) -> None:
        """Start measuring."""
        self._thread.start()

    def end(self) -> None:
        """Stop measuring."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(_PAUSE):
            job = max((played.job_id for played in list(self._clients.played)), default=0)
            if not job:
                continue
            begin = boot_seconds()
            try:
                self._clients.client.status(job)
            except (TrainingServiceError, ValueError):  # the client has been closed
                if self._is_over.is_set():
                    return
            self.spans.append((begin, boot_seconds()))
