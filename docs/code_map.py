"""The code map: the parts of the package, what they hold, and which of them import which, read from the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from docs.texts import cell

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "lakehouse"
MARKS = ("<!-- code map: python -m docs.code_map -->", "<!-- end of code map -->")


@dataclass(frozen=True)
class Part:
    """A package or module at the top of `lakehouse/`: its name, what its docstring says first, what it imports."""

    name: str
    about: str
    imports: frozenset[str]


@lru_cache(maxsize=1)
def parts() -> dict[str, Part]:
    """The parts of the package, lower ones first: one imports only those before it, as far as there is no circle."""
    found = {each.name: each for each in _parts()}
    return {
        name: found[name] for names in _rows({name: each.imports for name, each in found.items()}) for name in names
    }


def _parts() -> Iterator[Part]:
    tops = [path for path in sorted(PACKAGE.iterdir()) if path.suffix == ".py" or (path / "__init__.py").is_file()]
    names = {path.stem for path in tops} - {"__init__"}
    for path in tops:
        if path.stem == "__init__":
            continue
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        imported = set().union(*(_imported(file) for file in files))
        head = ast.get_docstring(
            ast.parse((path / "__init__.py" if path.is_dir() else path).read_text(encoding="utf-8"))
        )
        about = " ".join((head or "").split("\n\n")[0].split())
        yield Part(path.stem, about, frozenset((imported & names) - {path.stem}))


def _imported(file: Path) -> set[str]:
    """Top-level parts that a module imports when it is loaded or in a function; what only types need does not count."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    typed = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typed:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = node.module or ""
            found |= {f"{module}.{alias.name}" for alias in node.names} if module == "lakehouse" else {module}
    return {name.split(".")[1] for name in found if name.startswith("lakehouse.")}


def code_map_text() -> str:
    """The parts as a list, lowest first."""
    lines = ["| Part of `lakehouse/` | What it holds |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{each.name}` | {cell(each.about)} |" for each in parts().values())])


def code_map_page() -> str:
    """The parts with a drawing of their imports."""
    lines = [
        "# Code map",
        "",
        "The package has these parts. Imports point one way, and a test holds that. In the drawing a part imports only",
        "parts below it. In the list, which begins with the lowest, it imports only parts above it.",
        "The arrows are the direct imports; an arrow that follows from two others is left out.",
        "",
        "![Parts of the package and what they import](../images/code-map.svg)",
        "",
        "| Part | What it holds | It imports |",
        "|---|---|---|",
    ]
    lines += [
        f"| `{each.name}` | {cell(each.about)} | {', '.join(f'`{n}`' for n in sorted(each.imports))} |"
        for each in parts().values()
    ]
    return "\n".join([*lines, ""])


_HEAD = (
    '<defs><marker id="a" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
    '<path class="head" d="M0,0L8,4L0,8z"/></marker></defs>'
)
WIDTH, ROW, BOX, GAP = 860, 74, (112, 32), 14
_STYLE = (
    "svg{font:13px system-ui,sans-serif}.card{fill:#fff}.box{fill:#eef2f7;stroke:#64748b}.arrow{fill:none;stroke:#64748b}"
    ".head{fill:#64748b}text{fill:#1e293b;text-anchor:middle}@media(prefers-color-scheme:dark){.card{fill:#1e2530}"
    ".box{fill:#2c3644;stroke:#8b9bb0}.arrow{stroke:#8b9bb0}.head{fill:#8b9bb0}text{fill:#e6ebf2}}"
)


def code_map_svg() -> str:
    """The parts in rows, users above what they use."""
    rows = _rows({name: each.imports for name, each in parts().items()})
    height = ROW * len(rows) + GAP
    at: dict[str, tuple[float, float]] = {}
    for number, names in enumerate(rows):
        free = (WIDTH - len(names) * BOX[0]) / (len(names) + 1)
        for place, name in enumerate(names):
            at[name] = (free * (place + 1) + BOX[0] * (place + 0.5), height - ROW * (number + 0.5) - GAP / 2)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Parts of the package">',
        f"<style>{_STYLE}</style>",
        _HEAD,
        f'<rect class="card" width="{WIDTH}" height="{height}" rx="8"/>',
    ]
    for name, used in _reduced({name: each.imports for name, each in parts().items()}).items():
        for other in sorted(used):
            (x1, y1), (x2, y2) = at[name], at[other]
            y1, y2 = y1 + BOX[1] / 2, y2 - BOX[1] / 2
            drawn.append(
                f'<path class="arrow" marker-end="url(#a)" d="M{x1:.0f},{y1:.0f}C{x1:.0f},{y1 + 24:.0f} {x2:.0f},{y2 - 24:.0f} '
                f'{x2:.0f},{y2:.0f}"/>'
            )
    for name, (x, y) in at.items():
        drawn.append(
            f'<rect class="box" x="{x - BOX[0] / 2:.0f}" y="{y - BOX[1] / 2:.0f}" width="{BOX[0]}" height="{BOX[1]}" rx="5"/>'
            f'<text x="{x:.0f}" y="{y + 4:.0f}">{name}</text>'
        )
    return "\n".join([*drawn, "</svg>", ""])


def _rows(uses: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Names by the length of the longest way down from them; a way that comes back to itself ends there."""
    depth: dict[str, int] = {}

    def deep(name: str, way: tuple[str, ...]) -> int:
        if name not in depth:
            below = [deep(each, (*way, name)) for each in uses[name] if each not in way and each != name]
            depth[name] = 1 + max(below, default=-1)
        return depth[name]

    rows: list[list[str]] = []
    for name in uses:
        number = deep(name, ())
        rows += [[] for _ in range(number + 1 - len(rows))]
        rows[number].append(name)
    return rows


def _reduced(uses: Mapping[str, frozenset[str]]) -> dict[str, set[str]]:
    """Imports without those that follow from others: of a → b → c and a → c the last."""

    def reach(name: str, seen: set[str]) -> set[str]:
        for each in uses[name] - seen:
            seen.add(each)
            reach(each, seen)
        return seen

    below = {name: reach(name, set()) for name in uses}
    return {
        name: {
            each
            for each in used
            if not any(each in below[other] and name not in below[other] for other in used - {each})
        }
        for name, used in uses.items()
    }


def renewed(contributing: str) -> str:
    """The text of CONTRIBUTING.md with the code map as it is now."""
    head, rest = contributing.split(MARKS[0])
    return f"{head}{MARKS[0]}\n{code_map_text()}\n{MARKS[1]}{rest.split(MARKS[1])[1]}"


if __name__ == "__main__":
    file = ROOT / "CONTRIBUTING.md"
    file.write_text(renewed(file.read_text(encoding="utf-8")), encoding="utf-8")
