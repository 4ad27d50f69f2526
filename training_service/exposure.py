"""What the log says at each start about who may use the service, and as which user its jobs run."""

import logging
import os

from training_service.settings import Settings
from training_service.settings.addresses import is_loopback

log = logging.getLogger(__name__)


def log_exposure(settings: Settings) -> None:
    """Log who can reach the service, and warn of what an operator should know."""
    address = settings.server.address
    if is_loopback(address):
        log.info(
            "server.address %s: every program on this machine, jobs included, can submit, read and cancel "
            "every job",
            address,
        )
    else:
        log.warning(
            "server.insecure: there is no authentication or encryption, and whoever reaches %s can submit, "
            "read and cancel every job",
            address,
        )
    if settings.backend == "process" and os.geteuid() == 0:
        log.warning("the service runs as root, and so do all jobs: start it as a user of its own")
