"""A lakehouse as a user's first backfill leaves it: nobody else can read it, and the key of the tokens is in no log."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakehouse.settings import Settings, token_of
from lakehouse.spark.config import spark_config
from lakehouse.store.disk import private_umask
from lakehouse_tests.conftest import ALONE

DAY = date(2026, 3, 2)
KEY = "k3y of these tests: löng énough?"


def run(root: Path, *arguments: str, **settings: str) -> None:
    """A command in a process of its own, started by a shell that lets everybody read what it makes."""
    done = subprocess.run(
        [sys.executable, "-m", "lakehouse.cli", *arguments],
        env=os.environ | ALONE | {"LAKEHOUSE_ROOT": str(root)} | settings,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        umask=0o022,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Root and event log of a backfill of one table with e-mail addresses."""
    root, events = tmp_path_factory.mktemp("sealed") / "root", tmp_path_factory.mktemp("event-log")
    config = json.loads(os.environ["LAKEHOUSE_SPARK_CONFIG"]) | {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(events),
        "spark.eventLog.compress": "false",
        "spark.sql.ui.explainMode": "extended",
        "spark.log.level": "INFO",
    }
    run(root, "land", "events", "--from", str(DAY), "--days", "1", "--rows", "50", "--seed", "3")
    run(
        root, "backfill", "--select", "bronze.events", "--from", str(DAY), "--to", str(DAY),
        LAKEHOUSE_PII_KEY=KEY, LAKEHOUSE_SPARK_CONFIG=json.dumps(config),
    )  # fmt: skip
    return root, events


def forms(secret: bytes) -> Iterator[bytes]:
    """How bytes may stand in a log: as they are, escaped, in base 16 or 64, or as numbers."""
    text = secret.decode("latin-1")
    yield from (secret, text.encode(), json.dumps(text)[1:-1].encode(), repr(secret)[2:-1].encode())
    yield from (secret.hex().encode(), secret.hex(" ").encode(), base64.b64encode(secret).rstrip(b"=")[:-1])
    signed = [byte - 256 if byte > 127 else byte for byte in secret]
    for numbers in (list(secret), signed):
        yield from (",".join(map(str, numbers)).encode(), ", ".join(map(str, numbers)).encode())


@pytest.mark.slow
def test_the_key_is_in_no_log(built: tuple[Path, Path]) -> None:
    """Without it, whoever reads an event log, a page of Spark or its output could make and reverse every token."""
    root, events = built
    folders = (events, root / "logs", root / "dagster")
    # An empty file says by its name whether the application goes on: it is renamed when the engine ends, at any moment.
    logs = [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith("appstatus")
    ]
    assert any(b"sparkPlanInfo" in path.read_bytes() for path in logs), "the event log has the plans"
    assert any(b"sha2" in path.read_bytes() for path in logs), "and those of the tokens"
    assert any(path.name == "engine.log" and b"INFO" in path.read_bytes() for path in logs)
    key = KEY.encode()
    secrets = [key, *(bytes(byte ^ pad for byte in key) for pad in (0x36, 0x5C))]
    wanted = [(form.lower(), secret) for secret in secrets for form in forms(secret)]
    for path in logs:
        data = path.read_bytes().lower()
        assert [secret for form, secret in wanted if form in data] == [], path
    rows = DeltaTable(root / "tables" / "bronze" / "events").to_pyarrow_table().to_pylist()
    tokens = {row["email_token"] for row in rows} - {None}
    assert tokens
    key_id = token_of("", key).partition(":")[0]
    assert all(token.startswith(f"{key_id}:") for token in tokens)


@pytest.mark.slow
def test_nobody_else_can_read_what_was_made(built: tuple[Path, Path]) -> None:
    """Without it, another user of the machine could read the landing zone, the tables, Dagster's state and the logs."""
    root, _ = built
    paths = [root, *root.rglob("*")]
    opened = {str(p.relative_to(root)): oct(p.stat().st_mode) for p in paths if stat.S_IMODE(p.lstat().st_mode) & 0o077}
    assert not opened
    kinds = {path.suffix for path in paths}
    assert {".gz", ".parquet", ".json", ".db", ".log"} <= kinds, kinds


@pytest.mark.parametrize(
    ("mode", "umask"), [(0o700, 0o077), (0o755, 0o077), (0o750, 0o027), (0o770, 0o007), (0o2770, 0o007)]
)
def test_a_root_that_was_opened_to_its_group_alone_stays_so(tmp_path: Path, mode: int, umask: int) -> None:
    tmp_path.chmod(mode)
    assert private_umask(tmp_path) == umask
    settings = Settings(root=tmp_path, spark_url="local[1]")
    assert spark_config(settings)["spark.hadoop.fs.permissions.umask-mode"] == f"{umask:03o}"


def test_a_root_that_is_not_there_will_be_private(tmp_path: Path) -> None:
    assert private_umask(tmp_path / "none") == 0o077
