"""Settings: validated once, named in every complaint, and the key of personal data kept safe."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse.commands.change import keys as tokens
from lakehouse.environment import misspelt
from lakehouse.errors import EngineError, SettingsError
from lakehouse.settings import Settings, get_settings, key_id
from lakehouse.spark import session
from lakehouse.spark.session import start
from lakehouse.versions.upkeep import sweep_drafts
from lakehouse_tests.conftest import SHARED

Configure = Callable[..., Settings]


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Configure]:
    """Settings of a process that starts in an empty folder with these variables."""
    monkeypatch.chdir(tmp_path)
    for name in {"LAKEHOUSE_ROOT", "LAKEHOUSE_PII_KEY", *SHARED} & {*os.environ}:
        monkeypatch.delenv(name)

    def make(**variables: str) -> Settings:
        for name, value in variables.items():
            monkeypatch.setenv(f"LAKEHOUSE_{name.upper()}", value)
        get_settings.cache_clear()
        return get_settings()

    yield make
    get_settings.cache_clear()


def test_everything_has_a_default_that_works_on_a_laptop(configure: Configure, tmp_path: Path) -> None:
    """Without it, a fresh clone would ask for configuration before it shows anything."""
    found = configure()
    assert found.root == tmp_path / ".lakehouse"
    assert found.landing == found.root / "landing"
    assert (found.spark_url, found.uses_connect, found.first_day) == ("local[*]", False, date(2010, 12, 1))
    assert not found.root.exists(), "reading the settings creates nothing"
    assert get_settings() is found


def test_the_environment_comes_before_the_file_and_empty_is_unset(configure: Configure, tmp_path: Path) -> None:
    """Without it, a `.env` left behind would win over the deployment's own variables."""
    (tmp_path / ".env").write_text("LAKEHOUSE_PORT=4000\nLAKEHOUSE_SPARK_MEMORY=2g\nOTHER=1\n")
    found = configure(port="5000", first_day="")
    assert (found.port, found.spark_memory, found.first_day) == (5000, "2g", date(2010, 12, 1))


def test_who_only_looks_makes_no_key(configure: Configure, tmp_path: Path) -> None:
    """Without it, `lakehouse keys list` on a new root would decide which key it has."""
    found = configure(root=str(tmp_path / "lake"))
    assert not found.has_pii_key
    assert found.pii_old_keys_bytes() == {}
    assert tokens._keys(found) == []
    assert not found.root.exists()
    found.pii_key_bytes()
    assert found.has_pii_key
    assert [each["state"] for each in tokens._keys(found)] == ["present"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("port", "0", "LAKEHOUSE_PORT: .*greater than or equal to 1"),
        ("port", "web", "^LAKEHOUSE_PORT: must be a valid integer. "),
        ("first_day", "01.12.2010", "^LAKEHOUSE_FIRST_DAY: must be a day such as 2011-01-04. "),
        ("first_day", "2020", "^LAKEHOUSE_FIRST_DAY: must be a day such as 2011-01-04. "),
        ("spark_url", "http://spark:4040", r"LAKEHOUSE_SPARK_URL: .*is none of local\[N\], sc://"),
        ("spark_url", "local[2", "LAKEHOUSE_SPARK_URL"),
        ("backfill_spark_url", "local[2", "LAKEHOUSE_BACKFILL_SPARK_URL"),
        ("backfill_spark_memory", "2 GB", "LAKEHOUSE_BACKFILL_SPARK_MEMORY"),
        ("backfill_days", "-1", "LAKEHOUSE_BACKFILL_DAYS: .*greater than or equal to 0"),
        ("spark_memory", "2 GB", "^LAKEHOUSE_SPARK_MEMORY: '2 GB' is not a size such as 1500m or 2g"),
        ("first_day", "0999-12-31", "LAKEHOUSE_FIRST_DAY: .*greater than or equal to 1000-01-01"),
        ("last_day", "9999-12-31", "LAKEHOUSE_LAST_DAY: .*less than or equal to 9998-12-31"),
        ("root", "lake[1]", r"LAKEHOUSE_ROOT: .*lake\[1\].*cannot hold"),
        ("root", "a%20b", "LAKEHOUSE_ROOT: .*a%20b.*cannot hold"),
        ("spark_config", "spark.ui.enabled=true", "LAKEHOUSE_SPARK_CONFIG: not valid JSON"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_its_variable(
    configure: Configure, name: str, value: str, message: str
) -> None:
    """Without it, a wrong value would show as an error of Spark or Dagster, somewhere, later."""
    with pytest.raises(SettingsError, match=message):
        configure(**{name: value})


def test_backfills_have_the_engine_of_live_runs_unless_told(configure: Configure) -> None:
    """Without it, a laptop would need settings for backfills, or a cluster's backfills take the engine of live runs."""
    plain = configure(spark_url="local[2]", spark_memory="2g", spark_config='{"a": "1", "b": "2"}')
    assert plain.for_backfill() == plain
    own = configure(backfill_spark_url="spark://there:7077", backfill_spark_config='{"b": "3"}').for_backfill()
    assert (own.spark_url, own.spark_memory, own.spark_config) == ("spark://there:7077", "2g", {"a": "1", "b": "3"})
    assert configure(backfill_spark_memory="1g").for_backfill().spark_memory == "1g"


def test_all_wrong_values_are_named_at_once(configure: Configure) -> None:
    """Without it, a deployment would be fixed one failed start at a time."""
    with pytest.raises(SettingsError, match=r"LAKEHOUSE_SPARK_MEMORY.*; LAKEHOUSE_PORT.*env.example") as caught:
        configure(port="0", spark_memory="much")
    assert caught.value.__cause__ is None


def test_a_misspelt_variable_is_told_and_another_programs_is_not(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, one letter too few would be another root, without a word."""
    monkeypatch.setenv("LAKEHOUSE_ROT", "/elsewhere")
    for name in ("LAKEHOUSE_FAILPOINT", "LAKEHOUSE_ORDERS_URL", "LAKEHOUSE_GUESTS"):
        monkeypatch.setenv(name, "x://y")
    (tmp_path / ".env").write_text("LAKEHOUSE_UNDO_DAY=3\nUNDO_DAYZ=3\n")
    configure()
    told = misspelt(Settings.model_fields, tmp_path / ".env", tmp_path / "none.env")
    assert told == {"LAKEHOUSE_ROT": "LAKEHOUSE_ROOT", "LAKEHOUSE_UNDO_DAY": "LAKEHOUSE_UNDO_DAYS"}


@pytest.mark.parametrize(
    "url", ["local", "local[4]", "local[*,3]", "sc://host:15002/;token=x", "spark://a:7077", "yarn", "k8s://https://x"]
)
def test_every_kind_of_engine_is_accepted(configure: Configure, url: str) -> None:
    """Without it, a documented engine could not be used."""
    assert configure(spark_url=url).uses_connect == url.startswith("sc://")


def test_a_relative_or_home_root_is_made_absolute(configure: Configure, tmp_path: Path) -> None:
    """Without it, tables would be written below whatever folder a daemon happens to run in."""
    assert configure(root="lake house/ü").root == tmp_path / "lake house" / "ü"
    assert configure(root="~/lake").root == Path.home() / "lake"


def test_the_key_is_the_environments_or_made_once_for_this_user_only(configure: Configure) -> None:
    """Without it, tokens would change from run to run, or their key be readable by everybody."""
    assert configure(pii_key="from the environment").pii_key_bytes() == b"from the environment"
    assert "from the environment" not in repr(get_settings())
    found = configure(pii_key="")
    key = found.pii_key_bytes()
    path = found.root / "keys" / "pii.key"
    assert len(key) == 64
    assert found.pii_key_bytes() == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_racing_first_uses_agree_on_one_key(configure: Configure) -> None:
    """Without it, rows written by two threads of a first run would carry tokens of different keys."""
    found = configure(pii_key="")
    keys: list[bytes] = []
    barrier = threading.Barrier(8)

    def use() -> None:
        barrier.wait(10)
        keys.append(found.pii_key_bytes())

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(keys) == 8
    assert len(set(keys)) == 1
    assert [path.name for path in (found.root / "keys").iterdir()] == ["pii.key"]


def test_a_crash_while_the_key_is_made_does_not_block_the_next_run(configure: Configure) -> None:
    """Without it, a draft left by a killed process would stop a later one that has the same process id."""
    found = configure(pii_key="")
    folder = found.root / "keys"
    folder.mkdir(parents=True)
    (folder / f".pii.key.{os.getpid()}").write_text("half")
    assert len(found.pii_key_bytes()) == 64


def test_an_empty_key_file_is_refused(configure: Configure) -> None:
    """Without it, tokens would be made with an empty key, which anybody can recompute."""
    found = configure(pii_key="")
    path = found.root / "keys" / "pii.key"
    path.parent.mkdir(parents=True)
    path.write_text("\n")
    with pytest.raises(SettingsError, match=r"pii\.key is empty"):
        found.pii_key_bytes()


def test_a_rotation_keeps_the_old_key_and_makes_a_new_one(configure: Configure) -> None:
    """Without it, tokens of before the rotation could not be told apart, nor recomputed to find a person's rows."""
    found = configure(pii_key="")
    old = found.pii_key_bytes()
    name = found.rotate_pii_key()
    new = found.pii_key_bytes()
    assert new != old
    assert name == key_id(new) != key_id(old)
    assert found.pii_old_keys_bytes() == {key_id(old): old}
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (found.root / "keys").iterdir())
    assert {path.name for path in (found.root / "keys").iterdir()} == {"pii.key", f"pii-{key_id(old)}.key"}
    assert not {old.decode(), new.decode()} & {name, key_id(old)}


def test_a_killed_rotation_is_finished_by_the_next(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a process killed between putting the old key aside and making the new one would block rotation."""
    found = configure(pii_key="")
    old = found.pii_key_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            found.rotate_pii_key()
    assert found.pii_key_bytes() == old
    assert found.pii_old_keys_bytes() == {}
    found.rotate_pii_key()
    assert found.pii_old_keys_bytes() == {key_id(old): old}
    (left,) = [path for path in (found.root / "keys").iterdir() if path.name.startswith(".")]
    os.utime(left, (0, 0))
    assert sweep_drafts(found.root) == 1  # else the secret of a key that was never used would lie there for ever
    assert not left.exists()


def test_a_key_of_the_environment_is_rotated_there(configure: Configure) -> None:
    """Without it, a rotation would write a key file that the environment's key keeps hidden."""
    found = configure(pii_key="new", pii_old_keys='["old", "older"]')
    assert set(found.pii_old_keys_bytes()) == {key_id(b"old"), key_id(b"older")}
    with pytest.raises(SettingsError, match="LAKEHOUSE_PII_OLD_KEYS") as caught:
        found.rotate_pii_key()
    assert "older" not in str(caught.value)


def test_a_lake_has_settings_of_its_own(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a lake of old data would show thousands of empty days to everybody who opens it elsewhere."""
    found = configure()
    found.keep(first_day=date(2011, 3, 1), last_day=date(2011, 3, 31))
    get_settings.cache_clear()
    assert (get_settings().first_day, get_settings().last_day) == (date(2011, 3, 1), date(2011, 3, 31))
    found.keep(last_day=None)
    get_settings.cache_clear()
    assert (get_settings().first_day, get_settings().last_day) == (date(2011, 3, 1), None)
    assert stat.S_IMODE(found.own_file.stat().st_mode) == 0o600
    (Path.cwd() / ".env").write_text("LAKEHOUSE_FIRST_DAY=2012-01-01\n")
    get_settings.cache_clear()
    assert get_settings().first_day == date(2012, 1, 1), ".env wins over the lake's own"
    monkeypatch.setenv("LAKEHOUSE_FIRST_DAY", "2013-01-01")
    get_settings.cache_clear()
    assert get_settings().first_day == date(2013, 1, 1), "a variable wins over both"


def test_settings_of_a_shared_lake_are_its_groups(configure: Configure) -> None:
    """Without it, who landed a file outside of the lake's days locked all others out of the lake."""
    found = configure()
    found.root.mkdir(parents=True)
    found.root.chmod(0o770)
    for mode in (0o660, 0o640, 0o600):
        found.keep(first_day=date(2011, 3, 1))
        assert stat.S_IMODE(found.own_file.stat().st_mode) == mode, "the root's at first, and then the file's own"
        found.own_file.chmod({0o660: 0o640}.get(mode, 0o600))


def test_settings_that_may_not_be_read_are_told(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, who opens somebody else's lake sees where this code failed, and not what to do."""
    own_file = configure().own_file

    def denied(_: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(own_file))

    get_settings.cache_clear()
    monkeypatch.setattr(Path, "exists", denied)
    with pytest.raises(SettingsError, match=rf"{own_file}: .* permission denied\. Have its owner let you read it"):
        get_settings()


def test_messages_show_an_engine_without_its_token(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the token of a shared engine would stand in the log of every run that cannot reach it."""
    settings = configure(spark_url="sc://engine:15002/;token=a-secret;use_ssl=true")
    assert settings.engine_name == "sc://engine:15002"

    def refused(_: Any) -> None:
        raise RuntimeError(f"UNAUTHENTICATED: {settings.spark_url} with a-secret was refused\nmore")

    monkeypatch.setattr(session, "answering", lambda _: "engine:15002")
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", refused)
    with pytest.raises(EngineError, match="The Spark engine at sc://engine:15002 did not start: UNAUTH") as caught:
        start(settings)
    assert "a-secret" not in str(caught.value)
