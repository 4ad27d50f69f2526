"""When the service starts, logs who can use it, and warns of insecure settings."""

import logging
import os

from training_service.auth.operator_token import FILE_NAME
from training_service.program_opening import refusal_of
from training_service.settings import Settings
from training_service.settings.addresses import is_loopback
from training_service.settings.protection import is_encrypted, is_open, is_web_open

log = logging.getLogger(__name__)

_HARM = "can submit, read and cancel every job, without a token"


def log_exposure(settings: Settings) -> None:
    """Log who can use the service.

    Log a warning if other machines can use it without protection, or if jobs run as root.
    """
    server, encrypted = settings.server, is_encrypted(settings)
    address, insecure = server.address, not is_loopback(server.address) and server.insecure
    if not is_open(settings):
        proofs = "a token" if server.tls.client_certificates == "none" else "a token or a client certificate"
        file = settings.storage.data_dir / FILE_NAME
        log.info("server.address %s: callers need %s; the operator's token is in %s", address, proofs, file)
        if insecure and not encrypted:
            log.warning(
                "server.insecure: the tokens of callers are not encrypted on their way to %s", address
            )
    elif server.tls.client_certificates == "required":
        log.info("server.address %s: callers need a client certificate", address)
    elif not insecure:
        log.info("server.address %s: every program on this machine, jobs included, %s", address, _HARM)
    else:
        missing = "authentication" if encrypted else "authentication or encryption"
        log.warning(
            "server.insecure: there is no %s; anyone who can connect to %s %s", missing, address, _HARM
        )
    if at := server.tls.certificate_address:
        log.info("server.tls.certificate_address %s: callers need a client certificate", at)
    if not refusal_of(settings):
        log.info("programs.enabled: callers with the role submitter can upload programs and run them")
    listen = settings.reports.listen
    if listen and not encrypted and not is_loopback(listen):
        log.warning("server.insecure: reports and their tokens are not encrypted on their way to %s", listen)
    web = settings.web
    if web.enabled is not False and web.address and server.insecure and not is_loopback(web.address):
        if is_web_open(settings):
            log.warning(
                "server.insecure: anyone who can connect to the dashboard at %s %s", web.address, _HARM
            )
        elif not encrypted:
            log.warning("server.insecure: the dashboard at %s is not encrypted", web.address)
    if settings.backend == "process" and os.geteuid() == 0:
        log.warning("the service and all its jobs run as root; start it as another user")
