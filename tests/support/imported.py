"""The modules that services import late. Fork servers import them before they fork."""

DASHBOARD = (
    "training_service.web.routes",
    "training_service.web.server",
    "training_service.web.site",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.h11_impl",
)
"""Imported by each service on a loopback address."""
