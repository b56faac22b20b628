"""Pictures of lineage: tables from left to right as they feed each other, and the columns a table is computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakehouse.report.figures import ColumnOrigin, TableReport

_LINE, _GAP, _PAD, _SIGN = 20, 14, 10, 7.0  # pixels: a line of text, between boxes, inside one, and a letter's width


@dataclass(frozen=True)
class Box:
    """A rectangle with lines of text; `head` is the first of them, and links to `link` where that is not empty."""

    x: float
    y: float
    width: float
    height: float
    head: str
    lines: Sequence[str] = ()
    link: str = ""


@dataclass(frozen=True)
class Drawing:
    """Boxes and the paths between them."""

    width: float
    height: float
    boxes: Sequence[Box]
    paths: Sequence[str]


def table_graph(found: Sequence[TableReport]) -> Drawing:
    """Each table right of all that it reads."""
    depth: dict[str, int] = {}
    names = {each.name for each in found}
    for each in found:  # upstream tables come first
        for source in each.reads:
            depth.setdefault(source, 0)
        depth[each.name] = 1 + max((depth[source] for source in each.reads), default=0)
    shown = [name for name in depth if name in names or any(name in each.reads for each in found)]
    boxes: dict[str, Box] = {}
    x = 1.0
    for level in sorted({depth[name] for name in shown}):
        inside = [name for name in shown if depth[name] == level]
        width = max(len(name) for name in inside) * _SIGN + 2 * _PAD
        for row, name in enumerate(inside):
            link = f"#{name}" if name in names else ""
            boxes[name] = Box(x, 1 + row * (_LINE + 2 * _GAP), width, _LINE + _PAD, name, link=link)
        x += width + 6 * _PAD
    paths = [_path(boxes[source], boxes[each.name]) for each in found for source in each.reads]
    return _drawing(list(boxes.values()), paths)


def column_graph(name: str, columns: Sequence[ColumnOrigin]) -> Drawing | None:
    """What each column is computed from, left to right; None where no column is said to come from another."""
    read: dict[str, dict[str, None]] = {}
    for column in columns:
        for source, field in column.sources:
            read.setdefault(source, {})[field] = None
    if not read:
        return None
    left: dict[str, Box] = {}
    y = 1.0
    width = max(len(text) for source, fields in read.items() for text in (source, *fields)) * _SIGN + 2 * _PAD
    for source, fields in read.items():
        left[source] = Box(1.0, y, width, _height(len(fields)), source, tuple(fields), f"#{source}")
        y += _height(len(fields)) + _GAP
    made = [column.name for column in columns if column.sources]
    mine = max(len(text) for text in (name, *made)) * _SIGN + 2 * _PAD
    right = Box(width + 220, 1.0, mine, _height(len(made)), name, tuple(made))
    paths = [
        _curve(width + 1, _middle(left[source], source_field), right.x, _middle(right, column.name))
        for column in columns
        for source, source_field in column.sources
    ]
    return _drawing([*left.values(), right], paths)


def origins(columns: Sequence[ColumnOrigin]) -> Mapping[str, str]:
    """By column, what it is computed from in words."""
    return {each.name: ", ".join(f"{table}.{column}" for table, column in each.sources) for each in columns}


def _height(lines: int) -> float:
    return (lines + 1) * _LINE + _PAD


def _middle(box: Box, line: str) -> float:
    return box.y + (box.lines.index(line) + 1.5) * _LINE + _PAD / 2


def _path(start: Box, end: Box) -> str:
    return _curve(start.x + start.width, start.y + start.height / 2, end.x, end.y + end.height / 2)


def _curve(x1: float, y1: float, x2: float, y2: float) -> str:
    bend = (x2 - x1) / 2
    return f"M{x1:.0f},{y1:.0f}C{x1 + bend:.0f},{y1:.0f} {x2 - bend:.0f},{y2:.0f} {x2:.0f},{y2:.0f}"


def _drawing(boxes: Sequence[Box], paths: Sequence[str]) -> Drawing:
    return Drawing(
        max((box.x + box.width for box in boxes), default=0) + 1,
        max((box.y + box.height for box in boxes), default=0) + 1,
        boxes,
        paths,
    )
