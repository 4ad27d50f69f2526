"""Any client certificate gives the caller its own name or no name. Only certificates of the authority give a
name.
"""

import logging
import warnings
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import example, given
from hypothesis import strategies as st

from job_tracker.domain.errors import NotAllowed
from tests.support.access import failure
from tests.support.api_service import Serve
from tests.support.certificates import DAY, Authority, Issued
from tests.support.entrance import Entrance
from tests.support.fuzzing import NO_LIMITS, fuzzed
from tests.support.patience import PATIENCE
from training_service._generated import access_service_pb2 as apb
from training_service._generated.access_service_pb2_grpc import AccessServiceStub
from training_service.auth.certificates import identity_of

CODE = grpc.StatusCode
OPERATORS = ("spiffe://example.org/root", "CN=root")

KEYS: dict[str, CertificateIssuerPrivateKeyTypes] = {
    "P-256": ec.generate_private_key(ec.SECP256R1()),
    "P-224": ec.generate_private_key(ec.SECP224R1()),
    "RSA 1024": rsa.generate_private_key(65537, 1024),
}
FOREIGN = ec.generate_private_key(ec.SECP256R1())
OIDS = (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.EMAIL_ADDRESS, NameOID.USER_ID)
USAGES = {
    "none": None,
    "client": ExtendedKeyUsageOID.CLIENT_AUTH,
    "server": ExtendedKeyUsageOID.SERVER_AUTH,
    "code": ExtendedKeyUsageOID.CODE_SIGNING,
}


@dataclass(frozen=True)
class Recipe:
    """The contents of a certificate."""

    subject: tuple[tuple[x509.ObjectIdentifier, str], ...] = ()
    uris: tuple[str, ...] = ()
    signer: str = "authority"
    usage: str = "client"
    key: str = "P-256"
    begins: timedelta = -DAY
    lasts: timedelta = 30 * DAY

    def made(self, authority: Authority) -> Issued:
        """Make the certificate."""
        key = KEYS[self.key]
        extensions: list[tuple[x509.ExtensionType, bool]] = []
        if self.uris:
            names = [x509.UniformResourceIdentifier(uri) for uri in self.uris]
            extensions.append((x509.SubjectAlternativeName(names), False))
        if usage := USAGES[self.usage]:
            extensions.append((x509.ExtendedKeyUsage([usage]), False))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the text is too long
            attributes = [x509.NameAttribute(oid, text, _validate=False) for oid, text in self.subject]
        subject = x509.Name(attributes)
        by = {"authority": None, "foreign": FOREIGN, "itself": key}[self.signer]
        pem = authority.sign(subject, key, extensions, -self.begins, self.lasts, by=by)
        form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return Issued(pem, key.private_bytes(*form))

    @property
    def is_wrong(self) -> bool:
        """Return whether no server may accept it."""
        is_late = self.begins > timedelta(0) or self.lasts < timedelta(0)
        return is_late or self.signer != "authority" or self.usage not in ("none", "client")


ODD = st.sampled_from(
    ["\0", "\n", ",", "+", "=", '"', "\\", "#", "/", " ", "é", "\u202e", ";O=x", "%00", "\x1b[2J"]
)
PIECES = st.lists(
    st.one_of(ODD, st.sampled_from(["root", "CN=root", "alice", "spiffe://example.org/root", "x" * 60])),
    min_size=1,
    max_size=4,
).map("".join)
URIS = st.one_of(
    st.sampled_from(
        [*OPERATORS, "https://example.org/root", "SPIFFE://EXAMPLE.ORG/root", "spiffe://", "", "x"]
    ),
    PIECES.map("spiffe://example.org/root{}".format),
    st.text(st.characters(max_codepoint=127), max_size=20).map("spiffe://example.org/{}".format),
    st.integers(400, 3000).map(lambda length: "spiffe://example.org/" + "x" * length),
).filter(str.isascii)
RECIPES = st.builds(
    Recipe,
    subject=st.lists(st.tuples(st.sampled_from(OIDS), PIECES), max_size=3).map(tuple),
    uris=st.lists(URIS, max_size=3).map(tuple),
    signer=st.sampled_from(["authority", "authority", "authority", "foreign", "itself"]),
    usage=st.sampled_from(["client", "client", *USAGES]),
    key=st.sampled_from(["P-256", "P-256", *KEYS]),
    begins=st.sampled_from([-DAY, -DAY, -DAY, DAY]),
    lasts=st.sampled_from([30 * DAY, 30 * DAY, 20_000 * DAY, -DAY]),
)
CN = NameOID.COMMON_NAME


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@fuzzed(100)
@given(uris=st.lists(URIS, max_size=2), cut=st.integers(0, 60), subject=PIECES | st.just(""))
async def test_what_grpc_says_counts_only_if_it_is_in_the_certificate(
    authority: Authority, uris: Sequence[str], cut: int, subject: str
) -> None:
    pem = Recipe(uris=tuple(uris)).made(authority).certificate
    said = uris[0][:cut] if uris else subject
    context = {"x509_pem_cert": [pem], "peer_spiffe_id": [said.encode()], "x509_subject": [subject.encode()]}
    try:
        identity = identity_of(context)
    except NotAllowed as error:
        refusal = str(error)
    else:
        assert identity is not None
        assert identity.name.isprintable()
        assert [identity.name] == ([*uris] if said else [subject])
        return
    assert refusal.isprintable()


class Guarded:
    """An entrance, a good caller, and the names that were seen so far."""

    def __init__(self, entrance: Entrance) -> None:
        self.entrance = entrance
        self.seen: dict[str, object] = {}
        channel = entrance.channel(Recipe(subject=((CN, "root"),)).made(entrance.authority))
        self.root: Any = AccessServiceStub(channel)
        self.close = channel.close


@pytest.fixture
async def guarded(serve: Serve, tmp_path: Path) -> AsyncIterator[Guarded]:
    entrance = Entrance(await serve(tracked=False, auth={"operators": OPERATORS}, limits=NO_LIMITS), tmp_path)
    await entrance.server.start()
    made = Guarded(entrance)
    yield made
    await made.close()
    await entrance.close()


@fuzzed(40)
@given(recipe=RECIPES)
@example(recipe=Recipe(uris=("spiffe://example.org/root\0.evil",)))
@example(recipe=Recipe(uris=("spiffe://example.org/root", "https://example.org")))
@example(recipe=Recipe(subject=((CN, "root"),), signer="itself"))
@example(recipe=Recipe(subject=((CN, "root"),), signer="foreign"))
@example(recipe=Recipe(subject=((CN, "root"),), usage="server"))
@example(recipe=Recipe(subject=((CN, "root"),), lasts=-DAY))
@example(recipe=Recipe(subject=((CN, "root"),), begins=DAY))
@example(recipe=Recipe(subject=((CN, "root\0"),)))
@example(recipe=Recipe(subject=((CN, "root"), (NameOID.ORGANIZATION_NAME, "x"))))
@example(recipe=Recipe(subject=((CN, "alice"),), key="RSA 1024"))
@example(recipe=Recipe())
@example(recipe=Recipe(subject=((CN, "x" * 600),)))
async def test_any_certificate_at_a_server(
    guarded: Guarded, caplog: pytest.LogCaptureFixture, recipe: Recipe
) -> None:
    caplog.set_level(logging.INFO)
    async with guarded.entrance.channel(recipe.made(guarded.entrance.authority)) as channel:
        stub: Any = AccessServiceStub(channel)
        code, details = await failure(stub.WhoAmI(apb.WhoAmIRequest(), timeout=PATIENCE))
        name = (await stub.WhoAmI(apb.WhoAmIRequest(), timeout=PATIENCE)).name if code is CODE.OK else ""
    assert code in (CODE.OK, CODE.UNAUTHENTICATED, CODE.UNAVAILABLE), details
    assert details.isprintable()
    if recipe.is_wrong:
        assert code is CODE.UNAVAILABLE, "the handshake failed"
    if name:
        assert name.isprintable()
        own = (recipe.subject, recipe.uris)
        if name.startswith("spiffe://"):
            assert recipe.uris == (name,)
        elif name == "CN=root":
            assert recipe.subject == ((CN, "root"),)
        else:
            assert guarded.seen.setdefault(name, recipe.subject) == recipe.subject, own
    assert "Traceback" not in caplog.text
    assert (await guarded.root.WhoAmI(apb.WhoAmIRequest())).name == "CN=root"
