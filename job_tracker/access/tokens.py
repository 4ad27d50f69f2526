"""The text of tokens: tst_ID_SECRET. Lists show the id; the secret is shown only once."""

import base64
import hashlib
import re
import secrets
from dataclasses import dataclass, field
from typing import Final

from job_tracker.domain.errors import InvalidField, NotAllowed

OPERATOR_ID: Final = "operator"
"""The id of the operator's token, which is in a file of the service, not in the store."""
LENGTH: Final = 56
_ID_LENGTH, _SECRET_BYTES = 8, 32
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_FORM = re.compile(r"tst_([a-z0-9]{8})_[A-Za-z0-9_-]{43}", re.ASCII)

REFUSED: Final = (
    "the token is not valid here; send 'authorization: Bearer TOKEN' with a token that `trainctl token "
    "create` printed for this service"
)
"""The same message for malformed and for unknown tokens, so that it does not show which ids exist."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """The text of a new token, its id, and the digest that is stored."""

    id: str
    text: str = field(repr=False)
    digest: bytes = field(repr=False)


def new_token(token_id: str | None = None) -> NewToken:
    """Make a token, with a random id if `token_id` is None. Its secret has 256 random bits."""
    while token_id is None:
        drawn = "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))
        token_id = drawn if drawn != OPERATOR_ID else None
    secret = base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).decode().rstrip("=")
    text = f"tst_{token_id}_{secret}"
    return NewToken(token_id, text, digest_of(text))


def id_of(text: str) -> str:
    """Return the id in the text of a token. Raises NotAllowed if the text is malformed."""
    form = _FORM.fullmatch(text) if len(text) == LENGTH else None
    if form is None:
        raise NotAllowed(REFUSED)
    return form[1]


def check_no_token(field: str, text: str) -> None:
    """Raise InvalidField for the field if its text is a whole token, since others can see the field."""
    if form := _FORM.fullmatch(text):
        raise InvalidField(field, f"it is a whole token; send only a name, or the token's id, {form[1]}")


def digest_of(text: str) -> bytes:
    """Return the SHA-256 of a token. No salt is needed, since the token is random."""
    return hashlib.sha256(text.encode(errors="replace")).digest()
