"""Runs training-service as `python -m training_service`."""

from training_service.commands import app

app(prog_name="training-service")
