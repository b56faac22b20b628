"""A PostgreSQL server of the tests' own: on loopback, a free port and a folder that goes with it."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

USER = "lakehouse"
FAST = {
    "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off",
    "listen_addresses": "'127.0.0.1'", "unix_socket_directories": "''", "max_connections": "60",
    "shared_buffers": "32MB", "max_prepared_transactions": "4", "timezone": "'Asia/Kolkata'",
    "datestyle": "'SQL, DMY'",
}  # fmt: skip
# What the source has to provide: `updated_at` that never goes back for a row, and a row left behind by every delete.
TABLES = """
CREATE TABLE orders (
    order_id text PRIMARY KEY, user_id text, status text NOT NULL, amount numeric NOT NULL, currency text NOT NULL,
    created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL
);
CREATE TABLE orders_deleted (order_id text, created_at timestamptz, deleted_at timestamptz NOT NULL);
CREATE FUNCTION orders_touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    NEW.updated_at = greatest(clock_timestamp(), OLD.updated_at + interval '1 microsecond');
    RETURN NEW;
END $$;
CREATE FUNCTION orders_bury() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO orders_deleted VALUES (
        OLD.order_id, OLD.created_at, greatest(clock_timestamp(), OLD.updated_at + interval '1 microsecond')
    );
    RETURN OLD;
END $$;
CREATE TRIGGER touch BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION orders_touch();
CREATE TRIGGER bury AFTER DELETE ON orders FOR EACH ROW EXECUTE FUNCTION orders_bury();
CREATE FUNCTION place(id text, status text, amount numeric, made timestamptz DEFAULT now()) RETURNS void LANGUAGE sql
    AS $$ INSERT INTO orders VALUES (id, 'u' || id, status, amount, 'EUR', made, clock_timestamp()) $$;
"""


def binaries() -> Path | None:
    """Folder of the newest PostgreSQL server installed here; None where there is none."""
    found = [Path(path).resolve().parent for path in [shutil.which("initdb")] if path]
    places = (Path("/usr/lib/postgresql"), Path("/opt/homebrew/opt"), Path("/usr/local/opt"))
    for place in places:
        found += sorted(place.glob("*/bin"), key=lambda path: path.parent.name, reverse=True)
    return next((path for path in found if (path / "initdb").exists() and (path / "postgres").exists()), None)


@dataclass(frozen=True)
class Server:
    """A running server."""

    bin: Path
    data: Path
    port: int
    password: str

    def shop(self) -> Shop:
        """A new database with the tables of a shop."""
        made = Shop(self, f"shop_{secrets.token_hex(4)}")
        Shop(self, "postgres").run(f"CREATE DATABASE {made.name}")
        made.run(TABLES)
        return made


@dataclass(frozen=True)
class Shop:
    """A database of the server."""

    server: Server
    name: str

    @property
    def url(self) -> str:
        """What `LAKEHOUSE_ORDERS_URL` holds."""
        return f"postgresql://{USER}:{self.server.password}@127.0.0.1:{self.server.port}/{self.name}"

    def client(self) -> subprocess.Popen[str]:
        """A client that reads statements from its standard input and prints bare values."""
        command = [str(self.server.bin / "psql"), "-XqAt", "-h", "127.0.0.1", "-p", str(self.server.port)]
        environment = {**os.environ, "PGPASSWORD": self.server.password, "PGTZ": "UTC", "PGOPTIONS": "-c DateStyle=ISO"}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*command, "-U", USER, "-d", self.name], env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def run(self, sql: str) -> str:
        """Run statements and return what they print."""
        with self.client() as client:
            out, err = client.communicate(sql, timeout=60)
        assert "ERROR" not in err, err
        return out.strip()

    def orders(self) -> set[tuple[str, ...]]:
        """Every order as `silver.order_status` should have it, as texts."""
        found = self.run(
            "SELECT order_id, user_id, status, round(amount, 2), currency, "
            "to_char(updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') FROM orders"
        )
        return {tuple(line.split("|")) for line in found.splitlines()}

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A connection that stays open, for transactions that take their time."""
        with self.client() as client:
            try:
                yield Session(client)
            finally:
                client.kill()


class Session:
    """One connection, statement by statement."""

    def __init__(self, client: subprocess.Popen[str]) -> None:
        self._client = client

    def __call__(self, sql: str) -> None:
        """Run statements, and come back when they are done."""
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        mark = secrets.token_hex(8)
        self._client.stdin.write(f"{sql};\n\\echo {mark}\n")
        self._client.stdin.flush()
        while (line := self._client.stdout.readline()).strip() != mark:
            assert line, "the connection is gone"


@contextmanager
def serving(folder_of: Path) -> Iterator[Server]:
    """A new server below a folder; it is stopped by its own process id at the end."""
    found = binaries()
    assert found is not None, "no PostgreSQL server: run `make database`"
    # The server refuses to run as root, and root's folders are closed to others.
    as_user: dict[str, Any] = {}
    if os.geteuid() == 0:
        name = "postgres" if any(each.pw_name == "postgres" for each in pwd.getpwall()) else "nobody"
        as_user = {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}
    folder = Path(tempfile.mkdtemp(prefix="postgres-", dir=None if as_user else folder_of))
    server = Server(found, folder / "data", _free_port(), secrets.token_hex(12))
    secret = folder / "password"
    secret.write_text(server.password)
    if as_user:
        for each in (folder, secret):
            shutil.chown(each, as_user["user"], as_user["group"])
    calm = {"cwd": folder, "stdout": subprocess.DEVNULL, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C"}, **as_user}
    try:
        subprocess.run(
            [found / "initdb", "-D", server.data, "-U", USER, "-A", "scram-sha-256", "--pwfile", secret, "-E", "UTF8"],
            check=True, timeout=120, **calm,
        )  # fmt: skip
        prepare(server, calm)
        with running(server, calm):
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running(server: Server, calm: dict[str, Any]) -> Iterator[None]:
    """The server of a data folder, up until the end of the block."""
    settings = [part for name, value in FAST.items() for part in ("-c", f"{name}={value.strip(chr(39))}")]
    with (server.data.parent / "log").open("a") as log:
        process = subprocess.Popen(
            [server.bin / "postgres", "-D", server.data, "-p", str(server.port), *settings], stderr=log, **calm
        )
    try:
        deadline = time.monotonic() + 60
        while subprocess.run(
            [server.bin / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(server.port)], check=False
        ).returncode:
            assert process.poll() is None, (server.data.parent / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the server did not come up"
            time.sleep(0.05)
        yield
    finally:
        process.send_signal(2)  # SIGINT: a fast shutdown, which ends open connections
        process.wait(60)


def prepare(server: Server, calm: dict[str, Any]) -> None:
    """Start counting transactions shortly before 2³², so that the tests cross the wrap-around of `xmin`."""
    with running(server, calm):
        for database in ("postgres", "template1"):
            Shop(server, database).run("VACUUM FREEZE")
    first = 2**32 - 120
    segment = server.data / "pg_xact" / f"{first // 2**20:04X}"
    segment.write_bytes(bytes(2**18))
    owner = (server.data / "pg_xact").stat()
    os.chown(segment, owner.st_uid, owner.st_gid)
    reset: list[str | Path] = [server.bin / "pg_resetwal", "-x", str(first), "-u", str(first), "-D", server.data]
    subprocess.run(reset, check=True, timeout=60, **calm)


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port: int = opened.getsockname()[1]
        return port
