"""Addresses of brokers: where they are, who logs in, and what both of Kafka's clients are told of it.

    kafka://host:9092,host:9093                               nobody logs in
    kafka://user:password@host:9092                           a login (SASL)
    kafka+ssl://user:password@host:9093?ca=/etc/brokers.pem   a login, encrypted (TLS)
    kafka+ssl://host:9093                                     encrypted, nobody logs in

Options are `mechanism` (SCRAM-SHA-512 by default, SCRAM-SHA-256, PLAIN) and `ca`: a PEM file with the certificates of
those who sign for the brokers, where the machine does not know them. Signs such as `@` and `/` in user and password are
written as `%40` and `%2F`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import SecretStr

from lakehouse.errors import SettingsError
from lakehouse.servers.certificates import certificates

TLS, OPEN = "kafka+ssl", "kafka"
# What a client says of lost connections goes to those who ask, by errors, and not to the terminal.
_QUIET: Mapping[str, Any] = {"log_level": 0, "error_cb": lambda _: None}
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")  # the first one sends no password, and is the default
_HOSTS = re.compile(r"[^\s/,:@]+:\d+(,[^\s/,:@]+:\d+)*")
_MODULES = {"PLAIN": "plain.PlainLoginModule"}
_SCRAM = "scram.ScramLoginModule"


@dataclass(frozen=True)
class Address:
    """Brokers, and how they are reached.

    Attributes:
        servers: what Kafka's clients call `bootstrap.servers`.
        user: who logs in; empty: nobody.
        password: of the user; it is never shown.
        mechanism: by which the login is proven; empty without one.
        tls: whether what is said is encrypted.
        ca_file: where the certificates of those who sign for the brokers are; empty: those that the machine knows.
        ca: these certificates, PEM. The text is handed on, so that no executor needs the file.
        setting: in which the address stands, for messages.
    """

    servers: str
    user: str = ""
    password: str = field(default="", repr=False)
    mechanism: str = ""
    tls: bool = False
    ca_file: str = ""
    ca: str = field(default="", repr=False)
    setting: str = ""

    @property
    def protocol(self) -> str:
        """Kafka's word for it."""
        kind = "SSL" if self.tls else "PLAINTEXT"
        return f"SASL_{kind}" if self.user else kind

    def for_client(self) -> dict[str, Any]:
        """What librdkafka is told, which sends messages and asks how far topics reach."""
        told = {"bootstrap.servers": self.servers, **_QUIET}
        if self.tls or self.user:
            told["security.protocol"] = self.protocol
        if self.user:
            told |= {"sasl.mechanisms": self.mechanism, "sasl.username": self.user, "sasl.password": self.password}
        return told | ({"ssl.ca.pem": self.ca} if self.ca else {})

    def for_spark(self) -> dict[str, str]:
        """Options of Spark's reader, whose executors read the messages."""
        told = {"kafka.bootstrap.servers": self.servers}
        if self.tls or self.user:
            told["kafka.security.protocol"] = self.protocol
        if self.user:
            module = f"org.apache.kafka.common.security.{_MODULES.get(self.mechanism, _SCRAM)}"
            login = f"username={_quoted(self.user)} password={_quoted(self.password)}"
            told |= {"kafka.sasl.mechanism": self.mechanism, "kafka.sasl.jaas.config": f"{module} required {login};"}
        if self.ca:
            told |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.certificates": self.ca}
        return told


def address_of(url: SecretStr, setting: str) -> Address:
    """The address in a setting.

    Args:
        url: as above.
        setting: its name, for messages: they never repeat the value, which holds a password.

    Raises:
        SettingsError: it is none, or its `ca` cannot be read.
    """
    try:
        parts = urlsplit(url.get_secret_value())
        login, _, hosts = parts.netloc.rpartition("@")
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise SettingsError(f"{setting}: cannot be read; signs in a password are written as %40 for @.") from None
    user, _, password = login.partition(":")
    if parts.scheme not in (TLS, OPEN) or not _HOSTS.fullmatch(hosts) or parts.path not in ("", "/") or parts.fragment:
        raise SettingsError(
            f"{setting}: is not an address such as {OPEN}://host:9092 or {TLS}://user:password@host:9093,host:9094."
        )
    if login and not (user and password):
        raise SettingsError(f"{setting}: a login is user and password, such as {parts.scheme}://user:password@host.")
    if unknown := options.keys() - {"mechanism", "ca"}:
        raise SettingsError(f"{setting}: unknown option {', '.join(sorted(unknown))}; there are mechanism and ca.")
    mechanism = options.get("mechanism", MECHANISMS[0] if login else "")
    if mechanism and (not login or mechanism not in MECHANISMS):
        raise SettingsError(f"{setting}: mechanism is {', '.join(MECHANISMS)}, and belongs to a user and a password.")
    tls, ca_file = parts.scheme == TLS, options.get("ca", "")
    if "ca" in options and not tls:
        raise SettingsError(f"{setting}: ca is for encrypted connections; write {TLS}://… .")
    ca = certificates(ca_file, setting) if "ca" in options else ""
    return Address(hosts, unquote(user), unquote(password), mechanism, tls, ca_file, ca, setting)


def _quoted(text: str) -> str:
    """As Kafka's reader of logins wants it, whatever signs are in it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
