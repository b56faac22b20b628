"""A Redis that is encrypted: whom it is trusted by, and what is said where it is not."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from lakehouse.errors import OnlineRefusedError, SettingsError
from lakehouse.online.address import redis_url, shown
from lakehouse.online.load import load
from lakehouse.online.store import OnlineStore
from lakehouse.servers.ports import free_port
from lakehouse.settings import Settings
from lakehouse_tests.conftest import LakeFactory
from lakehouse_tests.fixtures.profiles import DAYS, TABLE, noon, profiles, publish
from lakehouse_tests.fixtures.secured import signed
from lakehouse_tests.online.test_load import online

MON, TUE, *_ = DAYS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("encrypted")
    signed(made)
    return made


@pytest.fixture(scope="module")
def address(folder: Path, redis_server: Any) -> Iterator[str]:
    """Where a Redis listens that speaks TLS alone."""
    port = free_port()
    files = ["--tls-cert-file", "broker.pem", "--tls-key-file", "broker.pem", "--tls-ca-cert-file", "ca.pem"]
    words = ["--port", "0", "--tls-port", str(port), *files, "--tls-auth-clients", "no", "--save", ""]
    command = ["redis-server", "--bind", "127.0.0.1", *words]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as server:
        made = f"rediss://127.0.0.1:{port}/0"
        OnlineStore(url(made, folder / "ca.pem"), (0.1,) * 100).instance()
        yield made
        server.kill()


def url(address: str, ca: Path) -> str:
    """What is connected to, of an address as the setting has it."""
    return redis_url(Settings(root=ca.parent, redis_url=SecretStr(f"{address}?ca={ca}")))


@pytest.mark.spark
def test_workers_trust_who_the_address_names(lake: LakeFactory, address: str, folder: Path) -> None:
    """Without it, a Redis with a company's own certificates could not be used; workers would lack the file."""
    made = lake(profiles())
    publish(made, MON, {"a": 4, "b": 7})
    text = (folder / "ca.pem").read_text()
    (ca := folder / "bundle.pem").write_text(f"# 100 % trusted, by André\n{text}")
    trusted = url(address, ca)
    ca.unlink()
    assert load(made, trusted, made.table(TABLE), noon(TUE)).put.written == 2
    store = OnlineStore(trusted)
    assert online(store, made) == {"a": (MON, 4), "b": (MON, 7)}
    assert shown(trusted) == address
    store.close()


def test_a_certificate_that_is_not_trusted_is_no_outage(address: str, folder: Path) -> None:
    """Without it, it would be waited for, and people would be sent to look for a Redis that is on."""
    refused = rf"Redis at {address} refuses: its certificate is not signed .*\?ca=/path/ca.pem"
    for each in (address, url(address, folder / "other.pem")):
        with pytest.raises(OnlineRefusedError, match=refused):
            OnlineStore(each).instance()


@pytest.mark.parametrize(
    ("wrong", "why"),
    {
        "redis://:canary@host:1/0?ca=/ca.pem": "ca is for encrypted connections",
        "rediss://:canary@host:1/0?ca=/nowhere/ca.pem": "ca=/nowhere/ca.pem cannot be read",
        f"rediss://:canary@host:1/0?ca={__file__}": "holds no certificate",
        "rediss://:canary@host:1/0?cacert=/ca.pem": "is not an address such as",
    }.items(),
)
def test_an_address_that_names_no_certificates_is_told(tmp_path: Path, wrong: str, why: str) -> None:
    """Without it, the client's own error would be told, with the password."""
    with pytest.raises(SettingsError, match=why) as told:
        redis_url(Settings(root=tmp_path, redis_url=SecretStr(wrong)))
    assert "canary" not in str(told.value)
