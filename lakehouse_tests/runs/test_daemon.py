"""Asking the daemon for a backfill: whose lakehouse it is that answers."""

from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from lakehouse.errors import DaemonError
from lakehouse.runs import daemon
from lakehouse.runs.daemon import DaemonClient
from lakehouse.settings import Settings


def _answering(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Have a Dagster answer that keeps its state in a folder, as Dagster 1.13 tells of it."""
    told = yaml.dump({"local_artifact_storage": {"config": {"base_dir": str(home)}}, "compute_logs": "NoneType"})
    who = {"instance": {"info": told, "daemonHealth": {"daemonStatus": {"healthy": True}}}}
    started = {"launchPartitionBackfill": {"backfillId": "abcdefgh"}}
    monkeypatch.setattr(daemon, "ask", lambda _, query, __: started if "mutation" in query else who)


@pytest.mark.parametrize("name", ["lake", "Lâk ë ünd 湖", "a name with spaces that is as long as " + "they get " * 12])
def test_dagster_of_this_root_is_known_whatever_its_folder_is_called(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(root=tmp_path / name.strip())
    _answering(monkeypatch, settings.dagster_home)
    assert DaemonClient(settings, print).launch({}) == "abcdefgh"


@pytest.mark.parametrize("other", ["copy{root}/dagster", "{root}/dagster-old"])
def test_dagster_of_a_root_whose_path_only_contains_this_one_is_refused(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(root=tmp_path / "lake")
    _answering(monkeypatch, Path("/", other.format(root=settings.root)))
    with pytest.raises(DaemonError, match="another lakehouse's"):
        DaemonClient(settings, print).launch({})
