"""`python -m training_service` is training-service."""

from training_service.commands import app

app(prog_name="training-service")
