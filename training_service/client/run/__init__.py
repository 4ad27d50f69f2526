"""The files of a folder on their way to the service, so that a job can run a program in them."""
