"""A real LDAP server on 127.0.0.1: Debian's slapd with TLS."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme

from deploy.local.components import accepts_connections
from deploy.local.programs import debian
from deploy.local.programs.cache import build_once, recipe_hash, trees_folder
from deploy.local.progress import silent
from tests.eventually import eventually
from tests.login.client import KeyPair

HOST = "ldap.example.com"
"""Host name of the server, which listens on 127.0.0.1. The name is not localhost, because libldap
replaces localhost by this machine's own name."""
BASE = "dc=example,dc=com"
PORTS = ("ldap", "ldaps")
"""Names of the server's two ports in the argument `ports`."""
READER = f"cn=reader,{BASE}"
READER_PASSWORD = 'reads # all "of" it'
_ADMIN = f"cn=admin,{BASE}"
_ADMIN_PASSWORD = "admin"
_SUITE = "trixie"
_PACKAGES = ("base-files", "ldap-utils", "slapd")

# slapd's own schemas have no sshPublicKey, so the server gets the schema that is common for
# sshPublicKey.
_KEY_SCHEMA = """\
attributetype ( 1.3.6.1.4.1.24552.500.1.1.1.13 NAME 'sshPublicKey'
  EQUALITY octetStringMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 )
objectclass ( 1.3.6.1.4.1.24552.500.1.1.2.0 NAME 'ldapPublicKey' SUP top AUXILIARY MAY sshPublicKey )
"""
_CONFIGURATION = f"""\
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/nis.schema
include /etc/ldap/schema/inetorgperson.schema
include /srv/key.schema
modulepath /usr/lib/ldap
moduleload back_mdb
TLSCACertificateFile /srv/ca.pem
TLSCertificateFile /srv/server.pem
TLSCertificateKeyFile /srv/server.key
# Whoever asks without TLS is told nothing.
security tls=128
database mdb
suffix {BASE}
rootdn {_ADMIN}
rootpw {_ADMIN_PASSWORD}
directory /srv/data
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="{READER}" read by * none
"""
_ROOT = f"""\
dn: {BASE}
objectClass: dcObject
objectClass: organization
dc: example
o: example

dn: {READER}
objectClass: applicationProcess
objectClass: simpleSecurityObject
cn: reader
userPassword: {READER_PASSWORD}

dn: ou=people,{BASE}
objectClass: organizationalUnit
ou: people

dn: ou=groups,{BASE}
objectClass: organizationalUnit
ou: groups
"""
# Shell command with the arguments: $0 is the tree of files. $1 is a folder that becomes /srv in the
# tree.
_INSIDE = 'mount --bind "$1" "$0/srv" && mount --rbind /dev "$0/dev" && shift && exec chroot "$0" "$@"'


@dataclass(frozen=True, kw_only=True)
class Person:
    """A user of the directory."""

    name: str
    uid: int
    password: str
    key: str = ""
    """The user's public SSH key, as a line of authorized_keys."""


def one_of_each(name: str, uid: int, release: str, key: KeyPair) -> Person:
    """Returns a user for the tests of a release of Slurm. The tests of all releases share a directory,
    so the user's name and uid depend on the release."""
    number = int(release[:2])
    return Person(name=f"{name}-{number}", uid=uid + number, password=f"{name}'s", key=key.public)


class DirectoryServer:
    """slapd with its data. The server listens on 127.0.0.1 and has a certificate for HOST."""

    def __init__(
        self, folder: Path, ports: Mapping[str, int], authority: trustme.CA, *names: str
    ) -> None:
        """`folder` must be empty. `ports` has a port for each name in PORTS. The certificate is also for
        `names`."""
        self.uri = f"ldap://{HOST}:{ports['ldap']}"
        """URI for clients that use StartTLS."""
        self.tls_uri = f"ldaps://{HOST}:{ports['ldaps']}"
        self._ports = ports
        self._folder = folder
        self._tree = _tree()
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "data").mkdir()
        (folder / "key.schema").write_text(_KEY_SCHEMA)
        (folder / "slapd.conf").write_text(_CONFIGURATION)
        authority.cert_pem.write_to_path(folder / "ca.pem")
        certificate = authority.issue_cert(HOST, *names, common_name=HOST)
        certificate.cert_chain_pems[0].write_to_path(folder / "server.pem")
        certificate.private_key_pem.write_to_path(folder / "server.key")
        self._run("/usr/sbin/slapadd", "-f", "/srv/slapd.conf", stdin=_ROOT)

    def start(self) -> None:
        """Starts the server. Returns as soon as the server accepts connections."""
        listeners = " ".join(f"{scheme}://127.0.0.1:{self._ports[scheme]}/" for scheme in PORTS)
        command = ["/usr/sbin/slapd", "-f", "/srv/slapd.conf", "-h", listeners]
        with (self._folder / "slapd.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._inside(*command, "-d", "stats"), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        eventually(lambda: accepts_connections(self._ports["ldap"]), "slapd serves", 30)

    def stop(self) -> None:
        """Stops the server by SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def add(self, *people: Person) -> None:
        """Adds users to the directory. Each user also gets a group of the same name."""
        for person in people:
            self._change("ldapadd", _entry(person))

    def add_group(self, name: str, gid: int, *members: str) -> None:
        lines = [f"memberUid: {member}" for member in members]
        head = f"dn: cn={name},ou=groups,{BASE}\nobjectClass: posixGroup\ncn: {name}\ngidNumber: {gid}"
        self._change("ldapadd", "\n".join([head, *lines]))

    def change(self, person: Person, attribute: str, value: str) -> None:
        """Replaces an attribute of a user."""
        entry = f"dn: {_name(person)}\nchangetype: modify\nreplace: {attribute}\n{attribute}: {value}\n"
        self._change("ldapmodify", entry)

    def remove(self, person: Person) -> None:
        self._change("ldapmodify", f"dn: {_name(person)}\nchangetype: delete\n")

    def said(self) -> str:
        """Returns the server's log. The log shows each request with the sender."""
        return (self._folder / "slapd.log").read_text(errors="replace")

    def _change(self, program: str, ldif: str) -> None:
        bind = ("-x", "-ZZ", "-H", self.uri, "-D", _ADMIN, "-w", _ADMIN_PASSWORD)
        self._run(f"/usr/bin/{program}", *bind, stdin=ldif)

    def _run(self, *command: str, stdin: str) -> None:
        done = subprocess.run(
            self._inside(*command),
            env={**os.environ, "LDAPTLS_CACERT": "/srv/ca.pem"},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def _inside(self, *command: str) -> list[str]:
        tied = ["setpriv", "--pdeathsig", "KILL"]
        apart = ["unshare", "--mount", "--propagation", "private"]
        return [*tied, *apart, "sh", "-c", _INSIDE, str(self._tree), str(self._folder), *command]


@contextmanager
def serving(
    folder: Path, ports: Mapping[str, int], authority: trustme.CA, *names: str
) -> Iterator[DirectoryServer]:
    """Runs a server until the block ends."""
    server = DirectoryServer(folder, ports, authority, *names)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _tree() -> Path:
    def build(place: Path) -> None:
        debian.unpack(_SUITE, _PACKAGES, place)
        (place / "srv").mkdir()
        (place / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
        (place / "etc/hosts").write_text(f"127.0.0.1 localhost {HOST}\n")

    key = recipe_hash(repr(_PACKAGES).encode(), Path(debian.__file__).read_bytes())
    return build_once(trees_folder() / f"slapd-{_SUITE}-{key}", build, silent)


def _name(person: Person) -> str:
    return f"uid={person.name},ou=people,{BASE}"


def _entry(person: Person) -> str:
    classes = ("inetOrgPerson", "posixAccount", "shadowAccount", "ldapPublicKey")
    lines = [f"dn: {_name(person)}", *(f"objectClass: {each}" for each in classes)]
    lines += [f"{name}: {person.name}" for name in ("uid", "cn", "sn")]
    lines += [f"uidNumber: {person.uid}", f"gidNumber: {person.uid}"]
    lines += [f"homeDirectory: /home/{person.name}", f"userPassword: {person.password}"]
    lines += [f"sshPublicKey: {person.key}"] if person.key else []
    group = [f"dn: cn={person.name},ou=groups,{BASE}", "objectClass: posixGroup"]
    group += [f"cn: {person.name}", f"gidNumber: {person.uid}"]
    return "\n".join([*lines, "", *group, ""])
