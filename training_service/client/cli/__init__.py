"""trainctl, the command line of the training service.

A new command is a function in a module of `commands`, registered in `app`. A command uses
`training_service.client` for calls, `render` for text and `output` to choose between JSON, plain lines and
terminal output. `boundary` and `exit_codes` handle errors for all commands.
"""

import os

# gRPC's C core would print lost connections to standard error, between our lines. It reads this variable when
# it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from training_service.client.cli.app import app

__all__ = ["app"]
