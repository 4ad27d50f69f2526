"""Checks the parameters in the environment: `python -m network_check.check`, like language_model.check."""

import os
import sys

from trainer_kit.errors import ParameterError

from network_check.parameters import Parameters


def main() -> int:
    """Return the exit code: 0 if the parameters are valid, otherwise 65, with the reason on stderr."""
    try:
        Parameters.from_environment()
    except ParameterError as error:
        sys.stderr.write(f"{error}\n")
        return os.EX_DATAERR
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
