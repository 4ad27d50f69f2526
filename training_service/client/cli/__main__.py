"""`python -m training_service.client.cli` is trainctl."""

from training_service.client.cli import app

app(prog_name="trainctl")
