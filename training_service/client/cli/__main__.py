"""`python -m training_service.client.cli` is trainctl."""

from training_service.trainctl import main

main()
