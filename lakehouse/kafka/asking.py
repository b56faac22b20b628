"""Asking brokers as one who may not be let in: a refusal is noticed at once, where Kafka's client would ask on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, Self

from lakehouse.kafka.address import TLS, Address

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

_LOOK = 0.2  # seconds between two looks whether somebody refuses
# A handshake that broke off may be that of a broker which is stopped; one that was judged is not.
_JUDGED = re.compile(r"certificate|verif|alert|wrong.version|unsupported|unknown.ca", re.IGNORECASE)
_NOT_REACHED = re.compile(r"Connect to|resolve|timed out", re.IGNORECASE)
_MOMENT = re.compile(r" \(after \d+ms in state \w+\)")
# The same, as Java's client tells it; TLS problems of a network that breaks are none of these.
_REFUSED_LOGIN = re.compile(r"SaslAuthenticationException|Authentication failed")
_REFUSED_CERTIFICATE = re.compile(r"SslAuthenticationException|SSLHandshakeException|CertificateException|PKIX path")
_REFUSED_RIGHTS = re.compile(r"\w+AuthorizationException")


class RefusedError(Exception):
    """Brokers do not let the client in, or it does not trust them; what was said, and what to do."""


class Asking:
    """A client that administers, and what its brokers say of connections.

    To be used in a `with` block: a client that is not closed asks on, and where it is not let in, tries its password
    again ten times a second, until Python looks for garbage.

    Args:
        address: of the brokers.
    """

    def __init__(self, address: Address) -> None:
        from confluent_kafka.admin import AdminClient

        self._address = address
        self._heard: dict[str, KafkaError] = {}  # once each: it tells the same many times a second
        told: dict[str, Any] = {**address.for_client(), "error_cb": self._hear}
        self.client: AdminClient = AdminClient(told)

    def __enter__(self) -> Self:
        self.client.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self.client.__exit__(*raised)

    def wait(self, asked: Iterable[Future[Any]]) -> None:
        """Until all of it is answered, or failed.

        Raises:
            RefusedError: as soon as a broker refuses, or is not the one it says it is.
        """
        left: set[Future[Any]] = set(asked)
        while left := wait(left, _LOOK).not_done:
            self.check()

    def check(self) -> None:
        """Raises RefusedError where a broker has refused so far."""
        from confluent_kafka import KafkaError as Known

        self.client.poll(0)
        for said, error in self._heard.items():
            if error.code() == Known._AUTHENTICATION:  # noqa: SLF001  # its public name
                raise RefusedError(refused_login(self._address, said))
            if error.code() == Known._SSL and _JUDGED.search(said):  # noqa: SLF001
                raise RefusedError(refused_certificate(self._address, said))

    def hint(self) -> str:
        """What else may be wrong where no broker answers: those that are reached may want another kind of address."""
        if any(_NOT_REACHED.search(said) for said in self._heard):
            return ""
        now = self._address.protocol
        return f" as {now}; perhaps {self._address.setting} lacks user and password, or should or should not begin {TLS}://"

    def _hear(self, error: KafkaError) -> None:
        self._heard[_MOMENT.sub("", error.str()).rstrip(".")] = error


def refused_login(address: Address, said: str = "") -> str:
    """In words, a login that was not taken.

    Args:
        address: of the brokers.
        said: by the client; it names the broker, and no password.
    """
    who = f"{address.user!r} with {address.mechanism}" if address.user else "anybody without a login"
    told = f" ({said})" if said else ""
    return f"{address.servers} does not let in {who}{told}. Correct user, password or mechanism in {address.setting}"


def refused_certificate(address: Address, said: str = "") -> str:
    """In words, a broker that could not prove who it is; arguments as above."""
    told = f" ({said})" if said else ""
    ours = f"those in {address.ca_file}" if address.ca_file else "those that this machine knows"
    return (
        f"the certificate of {address.servers} is not signed by {ours}, is not for this host, or is out of date{told}. "
        f"Name the file of who signs for the brokers in {address.setting}: {TLS}://…?ca=/path/ca.pem"
    )


def refused_by(told: str, address: Address) -> str:
    """The same of what Spark's executors were told, whose traces may quote anything: nothing is repeated of them."""
    if _REFUSED_LOGIN.search(told):
        return refused_login(address)
    if _REFUSED_CERTIFICATE.search(told):
        return refused_certificate(address)
    if found := _REFUSED_RIGHTS.search(told):
        who = address.user or "clients without a login"
        return f"{address.servers} does not let {who} read ({found[0]}). Give it the rights to describe and read topics"
    return ""
