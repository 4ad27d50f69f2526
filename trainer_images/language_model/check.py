"""Checks the parameters in the environment: `python -m language_model.check`.

The service runs this at admission (`check` of an algorithm), where PyTorch may be missing. The exit code is
0 if the parameters are valid. Otherwise, it is 65 (EX_DATAERR of sysexits.h), and the reason is on stderr.
"""

import os
import sys

from trainer_kit.errors import ParameterError

from language_model.layout import Layout


def main() -> int:
    """Check the parameters, and return the exit code."""
    try:
        Layout.from_environment()
    except ParameterError as error:
        sys.stderr.write(f"{error}\n")
        return os.EX_DATAERR
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
