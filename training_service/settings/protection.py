"""Refuses unprotected addresses that other machines can reach, unless `server.insecure` is set.

Protection means that connections are encrypted, and that callers are identified.
"""

from collections.abc import Iterator

from job_tracker.common.printable import quoted
from job_tracker.common.validation import Problem
from training_service.settings.addresses import is_loopback
from training_service.settings.settings import Settings

_ALTERNATIVES = (
    "Listen on loopback (127.0.0.0/8, [::1] or localhost), {set}, or protect the port with a firewall or a "
    "network policy and set server.insecure = true (--insecure)"
)


def is_encrypted(settings: Settings) -> bool:
    """Return whether connections are encrypted."""
    return settings.server.tls.enabled


def is_authenticated(settings: Settings) -> bool:
    """Return whether every caller at `server.address` is identified."""
    return settings.server.tls.client_certificates == "required" or not is_open(settings)


def is_open(settings: Settings) -> bool:
    """Return whether callers without a token or a certificate are operators.

    This depends on the address at which the service listens, and not on the address of the caller: with a
    proxy on this machine, all callers come from loopback.
    """
    server = settings.server
    return settings.auth.loopback == "open" and (server.insecure or is_loopback(server.address))


def is_web_open(settings: Settings) -> bool:
    """Return whether visitors of the dashboard without a token are operators.

    The dashboard asks for no client certificates. So if the API requires certificates, the dashboard
    requires tokens.
    """
    return is_open(settings) and settings.server.tls.client_certificates != "required"


def may_send_code(settings: Settings) -> bool:
    """Return whether callers may send code by default: if all are identified, or all are on this machine."""
    return is_authenticated(settings) or is_loopback(settings.server.address)


def unprotected(settings: Settings) -> Iterator[Problem]:
    """Yield a problem for each setting that opens the service to other machines without protection.

    Also yield a problem for each setting that contradicts the settings of TLS.
    """
    server, reports = settings.server, settings.reports
    encrypted = is_encrypted(settings)
    if not (server.insecure or is_loopback(server.address) or encrypted):
        yield _reachable(
            ("server", "address"),
            server.address,
            "the service does not encrypt connections: anyone on the way can read the tokens of callers",
            "set server.tls",
        )
    web = settings.web
    if web.enabled is not False and web.address and not (server.insecure or is_loopback(web.address)):
        if not encrypted:
            yield _reachable(
                ("web", "address"),
                web.address,
                "the dashboard is not encrypted: anyone on the way can read the tokens of callers",
                "set server.tls",
            )
        elif is_web_open(settings):
            yield _reachable(
                ("web", "address"),
                web.address,
                "callers without a token are operators, so every visitor would be an operator",
                'set auth.loopback = "token"',
            )
    # Report tokens identify the senders of reports, so `reports.listen` needs encryption only.
    if reports.listen and not (server.insecure or is_loopback(reports.listen) or encrypted):
        yield _reachable(
            ("reports", "listen"),
            reports.listen,
            "the service does not encrypt connections: anyone on the way can read the tokens of reports",
            "set server.tls",
        )
    if reports.address and not reports.listen and server.tls.client_certificates == "required":
        yield Problem(
            ("reports", "address"),
            f"{quoted(reports.address)} is not allowed: ranks have no client certificates, which "
            "server.tls.client_certificates requires at server.address; set reports.listen to an address of "
            "their own",
        )
    if reports.ca and not encrypted:
        yield Problem(("reports", "ca"), "it is not allowed without TLS; set server.tls, or remove it")
    if settings.metrics.tls and not encrypted:
        yield Problem(("metrics", "tls"), "true is not allowed: it needs server.tls.certificate and key")


def _reachable(path: tuple[str, ...], address: str, harm: str, remedy: str) -> Problem:
    return Problem(
        path,
        f"{quoted(address)} is not allowed: other machines can reach it, and {harm}. "
        + _ALTERNATIVES.format(set=remedy),
    )
