"""trainctl, the command line of the training service.

A new command is a function in a module of `commands`, named in `app`. Asking is the client's
(`training_service.client`), wording is `render`'s, choosing between JSON, lines and pictures is
`output`'s, and errors and exit codes are `boundary`'s and `exit_codes`': a command has none of these.
"""

import os

# gRPC's C core reports lost connections on standard error, between our lines and in its own words.
# It reads this when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from training_service.client.cli.app import app

__all__ = ["app"]
