"""The settings of an engine: what is refused before a JVM is started for nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakehouse import users
from lakehouse.errors import EngineError
from lakehouse.settings import Settings
from lakehouse.spark.config import spark_config


def test_a_user_whom_the_system_does_not_know_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a container that runs under a bare number would end in a null pointer of Hadoop's."""

    def unknown(user: int) -> None:
        raise KeyError(user)

    monkeypatch.setattr(users.pwd, "getpwuid", unknown)
    with pytest.raises(EngineError, match=rf"as the user {os.geteuid()}, who is not in the system's list of users"):
        spark_config(Settings(root=tmp_path, spark_url="local[2]"))
    assert spark_config(Settings(root=tmp_path, spark_url="sc://somewhere")), "a server elsewhere has its own user"
