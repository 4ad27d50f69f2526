"""Says whether a training with the parameters in the environment can be: `python -m language_model.check`.

The service runs it at its door, where there need be no PyTorch (`check` of an algorithm). The exit code is
0, or 65 (EX_DATAERR of sysexits.h) with the reason on stderr.
"""

import os
import sys

from trainer_kit.errors import ParameterError

from language_model.layout import Layout


def main() -> int:
    """Answers with the exit code."""
    try:
        Layout.from_environment()
    except ParameterError as error:
        sys.stderr.write(f"{error}\n")
        return os.EX_DATAERR
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
