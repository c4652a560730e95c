"""The listeners' certificate: from files, or issued by the replicas. A listener with a CA file also
requires client certificates.

The replicas keep their own CA, and a certificate signed by this CA, in a Secret. A replica that finds no
CA creates the CA and the certificate. A replica that finds an old certificate signs a new certificate.
All replicas use the Secret's content. The CA stays the same, so that clients trust a new certificate
from the start."""

import asyncio
import ssl
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Protocol, Self

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubernetes_client.errors import Conflict, KubernetesError
from kubernetes_client.protocol import Kubernetes, Manifest
from service.health import Health
from service.periodic import periodically

log = structlog.get_logger()

_LOOK_S = 30.0
_SOON_S = 1.0
_AUTHORITY_LIVES = timedelta(days=3650)
_LIVES = timedelta(days=365)
_RENEWED_AFTER = timedelta(days=240)
_EARLIER = timedelta(hours=1)  # tolerance for differences between clocks
_PART = "webhook certificate"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, both in PEM."""

    certificate: bytes
    key: bytes

    @classmethod
    def ca(cls, now: datetime) -> Self:
        """Returns a new CA that signs only the extender's certificates."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("slurm-extender webhooks")
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = (
            _builder(name, name, key.public_key(), now, _AUTHORITY_LIVES)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls._of(builder.sign(key, hashes.SHA256()), key)

    def signs(self, names: Sequence[str], now: datetime) -> Self:
        """Returns a server certificate for these DNS names and addresses, signed by this CA."""
        issuer = x509.load_pem_x509_certificate(self.certificate)
        signer = load_pem_private_key(self.key, password=None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)  # the key type of `ca`
        key = ec.generate_private_key(ec.SECP256R1())
        own = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        builder = (
            _builder(_name(names[0][:64]), issuer.subject, key.public_key(), now, _LIVES)
            .add_extension(x509.SubjectAlternativeName([_alternative(n) for n in names]), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(own, critical=False)
        )
        return self._of(builder.sign(signer, hashes.SHA256()), key)

    @classmethod
    def _of(cls, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Self:
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return cls(certificate.public_bytes(Encoding.PEM), pem)

    def serves(self, names: Sequence[str], now: datetime) -> bool:
        """Returns True if this certificate has all of these names and needs no renewal yet."""
        certificate = x509.load_pem_x509_certificate(self.certificate)
        listed = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        young = now < certificate.not_valid_before_utc + _RENEWED_AFTER
        return young and all(_alternative(name) in listed for name in names)

    @property
    def lifetime(self) -> tuple[float, float]:
        """Start and end of the certificate's validity, in UNIX seconds."""
        certificate = x509.load_pem_x509_certificate(self.certificate)
        valid = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        return valid[0].timestamp(), valid[1].timestamp()

    def context(self, authorities: str | None = None) -> ssl.SSLContext:
        """Returns the TLS context for connections. With `authorities` (PEM), the context accepts
        only clients with a certificate of one of these CAs. Raises OSError (also ssl.SSLError) and
        ValueError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with tempfile.TemporaryDirectory() as folder:  # mode 0700; ssl reads only files
            path = Path(folder) / "pair.pem"
            path.write_bytes(self.certificate + self.key)
            context.load_cert_chain(path)
        if authorities is not None:
            context.load_verify_locations(cadata=authorities)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    lives: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + lives)
    )


class Source(Protocol):
    """The source of the certificate."""

    async def read(self) -> KeyPair:
        """Returns the current certificate. Raises OSError, ValueError and KubernetesError."""
        ...


@dataclass(frozen=True, slots=True)
class Files:
    """A certificate and a key in files, like the files of a mounted Secret."""

    certificate: Path
    key: Path

    async def read(self) -> KeyPair:
        return KeyPair(self.certificate.read_bytes(), self.key.read_bytes())


@dataclass(frozen=True, slots=True)
class SelfSigned:
    """The certificate that the replicas keep in a Secret. The replicas write the CA to the webhook
    configurations named `configuration`."""

    kubernetes: Kubernetes
    namespace: str
    secret: str
    names: Sequence[str]
    configuration: str

    async def read(self) -> KeyPair:
        now = datetime.now(UTC)
        kept = await self.kubernetes.read_secret(self.namespace, self.secret)
        ca, pair = self._parsed(kept)
        if ca is None:
            ca = KeyPair.ca(now)
        if pair is None or not pair.serves(self.names, now):
            pair = ca.signs(self.names, now)
            try:
                await self._keep(kept, ca, pair)
            except Conflict:  # another replica was faster: uses the certificate of the other replica
                return await self.read()
            log.info("webhook certificate created", secret=self.secret, names=list(self.names))
        await self.kubernetes.trust(self.configuration, ca.certificate)
        return pair

    def _parsed(self, secret: Manifest | None) -> tuple[KeyPair | None, KeyPair | None]:
        data = {key: b64decode(text) for key, text in ((secret or {}).get("data") or {}).items()}

        def pair(name: str) -> KeyPair | None:
            certificate, key = data.get(f"{name}.crt"), data.get(f"{name}.key")
            return KeyPair(certificate, key) if certificate and key else None

        ca = pair("ca")
        return ca, pair("tls") if ca is not None else None

    async def _keep(self, kept: Manifest | None, ca: KeyPair, pair: KeyPair) -> None:
        files = {
            "ca.crt": ca.certificate,
            "ca.key": ca.key,
            "tls.crt": pair.certificate,
            "tls.key": pair.key,
        }
        metadata: dict[str, Any] = {"name": self.secret, "namespace": self.namespace}
        if kept is not None:
            metadata["resourceVersion"] = kept["metadata"]["resourceVersion"]
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": metadata,
            "data": {name: b64encode(content).decode() for name, content in files.items()},
        }
        await self.kubernetes.write_secret(secret)


class ListenerTls:
    """The TLS configuration of one listener, with the certificate. If the listener has a CA file (PEM),
    the listener accepts only clients with a certificate of these CAs. The CA file is read again after
    changes."""

    def __init__(self, authorities: Path | None) -> None:
        self.context: ssl.SSLContext | None = None
        """The TLS context of the next connection; None if there is no certificate yet. Each change
        creates a new context, because contexts can add CAs but not remove CAs."""
        self._authorities = authorities
        self._loaded: tuple[KeyPair, str | None] | None = None
        """Content of the current context. Contents are compared instead of file times, because the
        certificate may come from a Secret."""

    def take(self, pair: KeyPair) -> None:
        """Takes a new certificate. Raises OSError and ValueError, and keeps the old certificate on
        an error."""
        authorities = self._authorities.read_text() if self._authorities is not None else None
        if (pair, authorities) != self._loaded:
            self.context = pair.context(authorities)
            self._loaded = pair, authorities
            log.info("certificate loaded", client_authorities=str(self._authorities or "") or None)


class Certificate:
    """The certificate that all listeners use: the current certificate of the source. If the source's
    certificate is unusable, the problem is reported, and the last valid certificate stays in use."""

    def __init__(self, source: Source, health: Health) -> None:
        self._source = source
        self._health = health
        self._listeners: list[ListenerTls] = []
        self._usable = asyncio.Event()
        self._used: KeyPair | None = None
        self._has_problem = False

    def tls(self, client_authorities: Path | None = None) -> ListenerTls:
        """Returns the TLS configuration of one more listener. `client_authorities` is the listener's CA
        file."""
        self._listeners.append(ListenerTls(client_authorities))
        return self._listeners[-1]

    async def usable(self) -> None:
        """Waits until all listeners have a certificate."""
        await self._usable.wait()

    async def look(self) -> None:
        """Reads the current certificate and CAs, and passes both to all listeners."""
        try:
            pair = await self._source.read()
        except (OSError, ValueError, KubernetesError) as error:
            return self._tell(error)
        wrong = list(filter(None, (self._problem(tls, pair) for tls in self._listeners)))
        if not wrong:
            self._used = pair
            self._usable.set()
        return self._tell("; ".join(wrong) or None)

    def lifetime(self) -> tuple[float | None, float | None]:
        """Returns the start and the end of the validity of the certificate in use, in UNIX seconds.
        Returns None for both if there is no certificate yet."""
        return (None, None) if self._used is None else self._used.lifetime

    def _problem(self, tls: ListenerTls, pair: KeyPair) -> str | None:
        try:
            tls.take(pair)
        except (OSError, ValueError) as error:
            return str(error)
        return None

    def _tell(self, problem: str | Exception | None) -> None:
        self._has_problem = problem is not None
        self._health.says(_PART, problem)

    async def follow(self) -> None:
        """Reads the source again and again, forever."""
        await periodically(self.look, lambda: asyncio.sleep(_SOON_S if self._has_problem else _LOOK_S))
