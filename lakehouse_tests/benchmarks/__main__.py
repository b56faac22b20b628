"""Benchmarks: `pipeline` (the default) against the plain script in turns; `publish`, `anomalies`, `growth`, and more."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from datetime import date, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from lakehouse.sample.events import land_events
from lakehouse.sample.retail import land_sample_online_retail
from lakehouse_tests.fixtures.landed import land_online_retail

FIRST_DAY = date(2011, 1, 3)
THEN_DAYS = 5
ALONE = ("growth", "long_day", "sessions", "soak")
# Those that are done several times.
OF_ROUNDS = ("publish", "slices", "live", "report", "stream", "foreach_batch", "online", "training")
OF_SOURCE = ("anomalies", "late", "equality")  # those that can use real data


def main() -> int:
    """Run the chosen benchmark; JSON to standard output, progress to standard error."""
    parser = argparse.ArgumentParser(prog="python -m lakehouse_tests.benchmarks", description=__doc__)
    known = sorted({"pipeline", *ALONE, *OF_ROUNDS, *OF_SOURCE})
    parser.add_argument("what", choices=known, nargs="?", default="pipeline")
    parser.add_argument("--source", type=Path, help="folder of Online Retail files; default: a synthetic stand-in")
    parser.add_argument("--rounds", type=int, default=3)
    given, rest = parser.parse_known_args()
    # Each side has an engine of its own, as the plain script has.
    os.environ.setdefault("LAKEHOUSE_ENGINE_MINUTES", "0")
    if given.what != "pipeline":
        chosen = import_module(f"lakehouse_tests.benchmarks.{given.what}").main
        rounds = ["--rounds", str(given.rounds)] if given.what in OF_ROUNDS else []
        source = ["--source", str(given.source)] if given.source and given.what in OF_SOURCE else []
        return int(chosen([*rest, *rounds, *source]))
    own = argparse.ArgumentParser(prog=f"{parser.prog} pipeline")
    own.add_argument("--events", type=int, help="made-up web events in place of Online Retail lines, in all")
    own.add_argument("--days", type=int, default=30, help="the days over which the events are spread")
    made = own.parse_args(rest)
    report = pipeline(given.source, given.rounds, made.events, made.days)
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0


def pipeline(source: Path | None, rounds: int, events: int | None = None, days: int = 30) -> dict[str, Any]:
    """Full history in one run, then single days on the warm session: plain and ours in turns, ratios pair by pair.

    Args:
        source: A folder of Online Retail files; without it and without `events`, a made-up stand-in of 120 days.
        rounds: How often both are done.
        events: So many web events instead, and as many more a day for the single days.
        days: Over how many days they are spread.
    """
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
    with tempfile.TemporaryDirectory(prefix="lakehouse-bench-") as folder:
        landed = Path(folder) / "landed"
        if events:
            land_events(landed, FIRST_DAY, days + THEN_DAYS, events // days, seed=1)
        elif source:
            land_online_retail(source, landed, None, None)
        else:
            land_sample_online_retail(landed, FIRST_DAY, 120, rows=1500, seed=1)
        arrived = sorted(date.fromisoformat(p.name[:10]) for p in (landed / "landing").glob("*/2*"))
        first, last, then = arrived[0], arrived[-1 - THEN_DAYS], arrived[-THEN_DAYS:]
        span = ["--from", str(first), "--to", str(last), "--then", *map(str, then)]
        for turn in range(rounds):
            out, root = Path(folder) / "plain", Path(folder) / "root"
            for used in (out, root):
                shutil.rmtree(used, ignore_errors=True)
            shutil.copytree(landed, root)
            plain = _run("plain", "--landing", str(landed / "landing"), "--out", str(out), *span)
            ours = _run("through_dagster", "--root", str(root), *span)
            pairs.append((plain, ours))
            sys.stderr.write(
                f"round {turn + 1} of {rounds}: {_ratio(plain, ours, 0, 'seconds'):.2f} of the plain script\n"
            )
    return {
        "days": (last - first + timedelta(days=1)).days,
        "files": len(arrived),
        **({"events_a_second": _a_second(pairs, events // days * days)} if events else {}),
        "full_history": _compared(pairs, [0]),
        "one_warm_day": _compared(pairs, list(range(1, THEN_DAYS + 1))),
        "peak_rss_ratio": round(statistics.median(b["peak_rss_mb"] / a["peak_rss_mb"] for a, b in pairs), 3),
        "peak_rss_mb": {"plain": [a["peak_rss_mb"] for a, _ in pairs], "ours": [b["peak_rss_mb"] for _, b in pairs]},
        "rounds": [{"plain": a["runs"][0], "ours": b["runs"][0]} for a, b in pairs],
    }


def _compared(pairs: list[tuple[dict[str, Any], dict[str, Any]]], runs: list[int]) -> dict[str, Any]:
    both = [(a["runs"][n], b["runs"][n]) for a, b in pairs for n in runs]
    return {
        "wall_ratio": round(statistics.median(b["seconds"] / a["seconds"] for a, b in both), 3),
        "cpu_ratio": round(statistics.median(b["cpu_seconds"] / a["cpu_seconds"] for a, b in both), 3),
        "seconds": {"plain": [a["seconds"] for a, _ in both], "ours": [b["seconds"] for _, b in both]},
        "dagster_seconds": [b["dagster_seconds"] for _, b in both],
        "spark_jobs": {"plain": both[-1][0]["spark_jobs"], "ours": both[-1][1]["spark_jobs"]},
    }


def _a_second(pairs: list[tuple[dict[str, Any], dict[str, Any]]], events: int) -> dict[str, int]:
    median = [statistics.median(of_both[n]["runs"][0]["seconds"] for of_both in pairs) for n in (0, 1)]
    return {name: round(events / seconds) for name, seconds in zip(("plain", "ours"), median, strict=True)}


def _ratio(plain: dict[str, Any], ours: dict[str, Any], run: int, figure: str) -> float:
    return float(ours["runs"][run][figure] / plain["runs"][run][figure])


def _run(module: str, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", f"lakehouse_tests.benchmarks.{module}", *arguments],
        stdout=subprocess.PIPE,
        check=True,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


if __name__ == "__main__":
    sys.exit(main())
