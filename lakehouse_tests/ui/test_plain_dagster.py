"""Plain `dagster dev`, as people type it: the same lake, the same history, the same switches as `lakehouse dev`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakehouse_tests.ui.server import PlainServer, Server, wait_for

pytestmark = [pytest.mark.ui, pytest.mark.slow]

SENSORS = """{sensorsOrError(repositorySelector: {repositoryName: "__repository__",
    repositoryLocationName: "lakehouse.definitions"}) {... on Sensors {results {id name sensorState {
    id status ticks(limit: 5) {status error {message}}}}}}}"""


def sensors(server: Server) -> dict[str, dict[str, Any]]:
    """The sensors by name."""
    found = server.ask(SENSORS)["sensorsOrError"].get("results", [])
    return {each["name"]: each for each in found}


def test_what_is_switched_off_stays_off_and_no_sensor_breaks(tmp_path: Path) -> None:
    """Without it, `dagster dev` forgets everything at the end, alerts break, and switched-off sensors start runs."""
    root = tmp_path / "root"
    root.mkdir()
    own = {"auto_days": "3", "engine_minutes": "0"}  # nothing is computed, so no engine waits for it
    with PlainServer(root, "2011-01-03", **own) as plain:
        there = wait_for(lambda: sensors(plain), "the sensors are loaded", 60)
        assert {name: each["sensorState"]["status"] for name, each in there.items()} == dict.fromkeys(there, "RUNNING")
        ticks = wait_for(lambda: sensors(plain)["alerts"]["sensorState"]["ticks"], "alerts were looked for", 60)
        assert [tick["error"] for tick in ticks] == [None] * len(ticks)
        stop = (
            "mutation($id: String!) {stopSensor(id: $id) {... on StopSensorMutationResult {instigationState {status}}}}"
        )
        stopped = plain.ask(stop, {"id": there["landed"]["sensorState"]["id"]})
        assert stopped["stopSensor"]["instigationState"]["status"] == "STOPPED"
        assert "Traceback" not in plain.log_tail(500)
    with Server(root, "2011-01-03", **own) as ours:
        again = wait_for(lambda: sensors(ours), "the sensors are loaded", 60)
        assert again["landed"]["sensorState"]["status"] == "STOPPED"
