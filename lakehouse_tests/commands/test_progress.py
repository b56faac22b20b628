"""The bar of the running table shows how far its query is. No engine needed."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from lakehouse.commands.progress import Bars
from lakehouse.spark.progress import Progress

LONG = Progress(stages=3, stages_done=1, tasks=1_200, tasks_done=250, bytes_read=1_200_000_000, seconds=40)
SHORTER = Progress(stages=1, stages_done=0, tasks=4, tasks_done=1, bytes_read=0, seconds=2)


def shown(bars: Bars, console: Console) -> list[str]:
    """The lines of the bars as they stand."""
    with console.capture() as captured:
        console.print(bars._progress.get_renderable())
    return [line.strip() for line in captured.get().splitlines()]


@pytest.mark.parametrize(
    ("width", "told"),
    [(80, "stage 2/3, task 250/1200"), (120, "stage 2 of 3, 250 of 1,200 tasks, 1.2 GB read")],
)
def test_a_long_query_is_shown_beside_its_table_until_it_is_over(width: int, told: str) -> None:
    """Without it, a bar of one heavy day would stand still for minutes, or tell of a query that is over."""
    console = Console(file=StringIO(), width=width)
    bars = Bars(console, {"bronze.online_retail": 30, "silver.transactions": 30})
    bars.query(LONG)
    assert [line.endswith("waiting") for line in shown(bars, console)] == [True, True], "of no table"
    bars.step("bronze.online_retail", "start", 15)
    bars.query(LONG)
    first, second = shown(bars, console)
    assert first.endswith(told)
    assert "bronze.online_retail ━" in first, "there is room for the bar"
    assert second.endswith("waiting")
    bars.query(None)
    assert shown(bars, console)[0].endswith("running")
    bars.step("bronze.online_retail", "end", 0)
    bars.step("silver.transactions", "start", 0)
    bars.query(SHORTER)
    first, second = shown(bars, console)
    assert first.endswith("done")
    assert re.search(r"stage 1( of |/)1, ", second)
