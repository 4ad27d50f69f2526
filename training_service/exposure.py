"""Logs at the start who can use the service, and warns of insecure settings."""

import logging
import os

from training_service.settings import Settings
from training_service.settings.addresses import is_loopback

log = logging.getLogger(__name__)


def log_exposure(settings: Settings) -> None:
    """Log who can reach the service. Warn if other machines can, or if jobs run as root."""
    address = settings.server.address
    if is_loopback(address):
        log.info(
            "server.address %s: every program on this machine, jobs included, can submit, read and cancel "
            "every job",
            address,
        )
    else:
        log.warning(
            "server.insecure: there is no authentication or encryption; anyone who can connect to %s can "
            "submit, read and cancel every job",
            address,
        )
    if settings.backend == "process" and os.geteuid() == 0:
        log.warning("the service and all its jobs run as root; start it as another user")
