"""`python -m training_service` runs the command `training-service`."""

from training_service.commands import app

app(prog_name="training-service")
