"""`python -m training_service.client.cli` runs the command `trainctl`."""

from training_service.trainctl import main

main()
