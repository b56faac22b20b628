"""The process that starts those of a cluster, sees to it that workers stay, and ends them all. See `cluster`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lakehouse.servers.place import Place, read_record, say, write_private
from lakehouse.servers.ports import HERE, free_port
from lakehouse.spark.cluster import RECORD, Cluster, Size, remove_scratch, state_of
from lakehouse.spark.keeper import TOKEN

_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
LOOK = 0.5  # seconds between two looks at it


class _Supervisor:
    """Starts the processes, sees to it that workers stay, and ends them all."""

    def __init__(self, orders: Mapping[str, Any], place: Place) -> None:
        self._place = place
        self._folder, self._log, self._url = Path(orders["folder"]), orders["log"], orders["url"]
        self._size, self._connect_port = Size(**orders["size"]), orders["connect_port"]
        self._ended = threading.Event()
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.submodule_search_locations
        self._home = Path(spec.submodule_search_locations[0])
        self._page_port = free_port()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._ended.set())
        names = ["master", *(f"worker-{n + 1}" for n in range(self._size.workers))]
        self._start("master")
        self._until_listening(int(self._url.rpartition(":")[2]))
        for name in names[1:]:
            self._start(name)
        if self._connect_port:
            self._start("connect")
            self._until_listening(self._connect_port)
        self._until_workers_are_there()
        if not self._ended.is_set():
            pids = {name: each.pid for name, each in self._running.items()}
            page = f"http://{HERE}:{self._page_port}/"
            found = Cluster(self._url, page, self._size, pids, self._connect_port, str(self._folder), self._log)
            self._record = asdict(found)
            write_private(self._folder / RECORD, json.dumps(self._record))
            say("cluster", f"is on: {found.url}, {self._size}")
        self._watch()
        say("cluster", "ends")
        if self._place.is_kept():  # else what is there may be another cluster's
            (self._folder / RECORD).unlink(missing_ok=True)
        for each in reversed(self._running.values()):
            each.terminate()
        for each in self._running.values():
            each.wait()  # who asked for the end kills the group if this takes too long
        if self._place.is_kept():
            remove_scratch(self._folder)

    def _watch(self) -> None:
        while not self._ended.wait(LOOK):
            if not self._place.is_kept():
                say(
                    "cluster",
                    "is found by nobody: its folder is gone, or the file in it by which it is found (`alive`)",
                )
                return
            self._be_found()
            self._look_after()

    def _be_found(self) -> None:
        """Say again who keeps it and where it is, where a file is damaged: else nobody could use it, or end it."""
        with suppress(OSError):  # the disk is full; the next look tries again
            if self._place.pid() != os.getpid():
                self._place.tell_pid()
            if read_record(self._folder / RECORD) != self._record:
                write_private(self._folder / RECORD, json.dumps(self._record))

    def _look_after(self) -> None:
        for name, process in self._running.items():
            if process.poll() is None:
                continue
            say("cluster", f"lost its {name}, which ended with {process.returncode}")
            if name == "master":  # workers have nobody to be found by
                self._ended.set()
            else:
                self._ended.wait(1.0)
                self._start(name)
            return

    def _start(self, name: str) -> None:
        told = str(self._folder / "daemon.conf")
        environment = {**os.environ, "SPARK_HOME": str(self._home)}
        script = [str(self._home / "bin" / "spark-class")]
        port = self._url.rpartition(":")[2]
        if name == "master":
            what = [_MASTER, "--host", HERE, "--port", port, "--webui-port", str(self._page_port)]
            command = [*script, *what, "--properties-file", told]
        elif name == "connect":
            environment[TOKEN] = (self._folder / "token").read_text()
            script = [str(self._home / "bin" / "spark-submit")]
            command = [*script, "--properties-file", str(self._folder / "server.conf"), "--class", _SERVER]
            command.append("spark-internal")
        else:
            what = [_WORKER, "--host", HERE, "--webui-port", "0", "--cores", str(self._size.cores)]
            what += ["--memory", self._size.memory, "--work-dir", str(self._folder / "work" / name)]
            command = [*script, *what, "--properties-file", told, self._url]
        # They inherit what holds `alive`: whoever of them is left is still found, and ended.
        self._running[name] = subprocess.Popen(command, env=environment, close_fds=False)

    def _until_listening(self, port: int) -> None:
        while not self._ended.wait(0.1):
            with socket.socket() as probe:
                if probe.connect_ex((HERE, port)) == 0:
                    return
            if self._lost():
                return

    def _until_workers_are_there(self) -> None:
        while not self._ended.wait(0.1) and not self._lost():
            with suppress(OSError, ValueError):
                if len(state_of(f"http://{HERE}:{self._page_port}/").workers) >= self._size.workers:
                    return

    def _lost(self) -> bool:
        """Whether one has ended before all were there, which ends all."""
        if any(each.poll() is not None for each in self._running.values()):
            self._ended.set()
        return self._ended.is_set()


def main() -> None:
    """Take the orders from standard input, leave who started this behind, and keep the cluster."""
    orders = json.load(sys.stdin)
    place = Place(Path(orders["folder"]), Path(orders["log"]))
    place.keep("cluster", lambda: _Supervisor(orders, place).run(), orders["umask"], with_children=True)


if __name__ == "__main__":
    main()
