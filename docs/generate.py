"""Pages of the site that are made from the code: commands, settings, tables, contract words, code map.

MkDocs calls the `on_…` functions: they are the `hooks` of mkdocs.yml.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docs.code_map import code_map_page, code_map_svg
from docs.texts import cell, paragraphs

if TYPE_CHECKING:
    import click
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

    from lakehouse.contracts import Input, Table

_LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//|<link\b[^>]*\bhref=["']?(?:https?:)?//"""
)


# --- MkDocs


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    for path, make in PAGES.items():
        files.append(File.generated(config, path, content=make()))
    return files


def on_post_build(*, config: MkDocsConfig) -> None:
    """Refuse a page that loads something from elsewhere: the site is read offline too.

    Raises:
        PluginError: naming the pages.
    """
    from mkdocs.exceptions import PluginError

    site = Path(config.site_dir)
    found = [str(page.relative_to(site)) for page in site.rglob("*.html") if loads(page.read_text(encoding="utf-8"))]
    if found:
        raise PluginError(f"Pages that load a script, style or picture from elsewhere: {', '.join(sorted(found))}.")


def loads(page: str) -> bool:
    """Whether a page loads a script, a style or a picture from another host. Links to other hosts are no loads."""
    return bool(_LOADED.search(re.sub(r'<link\b[^>]*rel="?canonical[^>]*>', "", page)))


# --- commands


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command by its full name, such as `lakehouse schema lock`, in the order of `--help`."""
    import typer.main

    from lakehouse.cli import app

    def walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        if not hasattr(command, "commands"):
            yield name, command
        for key, each in getattr(command, "commands", {}).items():
            yield from walk(f"{name} {key}", each)

    yield from walk("lakehouse", typer.main.get_command(app))


def commands_page() -> str:
    """`lakehouse …`: what each command does, its arguments, options and examples."""
    lines = [
        "# Commands",
        "",
        "`lakehouse` is in `.venv/bin` after any `make` target. `lakehouse COMMAND --help` shows the same text as this page.",
        "Data and JSON go to standard output. Progress and errors go to standard error.",
        "",
        "| Exit code | Meaning |",
        "|---|---|",
        "| 0 | done |",
        "| 1 | a check failed, or a comparison differs |",
        "| 2 | wrong usage: the command line or a setting has to change |",
        "| 3 | execution error |",
        "| 130 | interrupted |",
        "",
    ]
    for name, command in commands():
        lines += [f"## {name}", "", paragraphs(command.help or ""), "", *_usage(name, command), ""]
    return "\n".join(lines)


def _usage(name: str, command: Any) -> list[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    words = " ".join(_argument(each) for each in arguments)
    lines = ["```console", f"$ {name} {words}{' ' if words else ''}[OPTIONS]", "```", ""]
    if arguments or options:
        lines += ["| Argument or option | Meaning |", "|---|---|"]
    lines += [
        f"| `{each.metavar or each.name.upper()}` | {cell(getattr(each, 'help', '') or '')} |" for each in arguments
    ]
    for each in options:
        names = ", ".join(f"`{opt}`" for opt in each.opts)
        value = "" if each.is_flag else f" `{each.metavar or each.name.upper()}`"
        default = f" Default: `{each.default}`." if _shown(each) else ""
        lines.append(f"| {names}{value} | {cell(each.help or '')}{default} |")
    examples = re.findall(r"^(lakehouse .*)$", (command.epilog or "").replace("\\[", "["), re.MULTILINE)
    return (
        [*lines, "", "Examples:", "", "```console", *(f"$ {line}" for line in examples), "```"] if examples else lines
    )


def _argument(each: Any) -> str:
    """As `--help` writes it: in brackets where it may be left out, with dots where it may be given several times."""
    name = (each.metavar or each.name.upper()) + ("…" if each.nargs == -1 else "")
    return name if each.required else f"[{name}]"


def _shown(option: Any) -> bool:
    return (
        not option.is_flag
        and option.default not in (None, "", (), [])
        and isinstance(option.default, str | int | float)
    )


# --- settings


def settings_page() -> str:
    """`LAKEHOUSE_…`: type, default and meaning of each setting."""
    from lakehouse.settings import Settings

    lines = [
        "# Settings",
        "",
        "Settings are environment variables. They may also be in a `.env` file (copy `.env.example`), or in `lake.env`",
        "under the root, where `make demo` writes the days of a new lake. An environment variable wins over `.env`, and",
        "`.env` wins over `lake.env`. All settings are checked when a process starts; an error names each wrong one.",
        "",
        "| Variable | Type | Default | Meaning |",
        "|---|---|---|---|",
    ]
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        shown = "" if default in (None, "", ()) else f"`{'{}' if default == {} else default}`"
        lines.append(
            f"| `LAKEHOUSE_{name.upper()}` | {_type(field.annotation)} | {shown} | {cell(field.description or '')} |"
        )
    return "\n".join([*lines, ""])


def _type(annotation: Any) -> str:
    text = (
        getattr(annotation, "__name__", "")
        if isinstance(annotation, type) and not _generic(annotation)
        else str(annotation)
    )
    text = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text).replace(" | None", "")
    words = {
        "Path": "path", "str": "text", "int": "whole number", "float": "number", "date": "day", "SecretStr": "secret",
        "dict[str, str]": "JSON object", "dict[str, SecretStr]": "JSON object of secrets", "tuple[SecretStr, ...]": "JSON list of secrets",
    }  # fmt: skip
    return words.get(text, f"`{text}`")


def _generic(annotation: Any) -> bool:
    return hasattr(annotation, "__origin__")


# --- tables


def tables_page() -> str:
    """Every table: grain, columns, rules, checks, freshness."""
    from lakehouse.catalog import declared

    found = declared()
    lines = [
        "# Tables",
        "",
        "These are the tables that were in use when the site was built: as the repository comes, those of the sample.",
        "`lakehouse tables` lists yours, and `lakehouse describe TABLE` shows one.",
        "Each table with row rules has a side table `…_quarantine`.",
        "",
        "| Table | One row is | Partition | Inputs | Owner |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| [{table.id}](#{_anchor(table.id)}) | {cell(table.grain)} | `{table.partition_by[0]}` | {_inputs(table)} | `{table.owner}` |"
        for table in found.values()
    ]
    for table in found.values():
        lines += ["", *_table(table)]
    return "\n".join([*lines, ""])


def _inputs(table: Table) -> str:
    if table.landing:
        return f"landed files of `{table.landing.source}`"
    if table.extract:
        return f"database `{table.extract.source}`, `{table.extract.relation}`"
    return ", ".join(f"`{each.table}`{_beside(each)}" for each in table.upstream.values())


def _beside(each: Input) -> str:
    from lakehouse.texts import counted

    sides = ((each.days_before, "before"), (each.days_after, "after"))
    closing = "" if each.hours_close_after is None else f", hours close {_span(each.hours_close_after)} after their end"
    return "".join(f" and {counted(days, 'day')} {side}" for days, side in sides if days) + closing


def _table(table: Table) -> Iterator[str]:
    from lakehouse.orchestration.checks import check_specs

    about = inspect.cleandoc(table.model.__doc__ or "")
    yield from (f"## {table.id}", "", about, "", f"File: `{table.transform.__module__.replace('.', '/')}.py`.", "")
    policy = {
        "One row is": table.grain,
        "Owner": f"`{table.owner}`",
        "Inputs": _inputs(table),
        "Partitions": ", ".join(f"`{c}`" for c in table.partition_by),
        "Key": ", ".join(f"`{c}`" for c in table.key),
        "Fresh within": _span(table.freshness.within),
        "Rows at least every": _span(table.freshness.every) if table.freshness.every > timedelta(days=1) else "",
        "Allowed lateness": _span(table.allowed_lateness) if table.allowed_lateness is not None else "",
        "Version of the columns": f"{table.schema_version}, {table.compatibility}",
    }
    yield from ("| | |", "|---|---|", *(f"| {name} | {cell(text)} |" for name, text in policy.items() if text), "")
    yield from ("| Column | Type | Nulls | Meaning |", "|---|---|---|---|")
    for f in table.schema.fields:
        nulls = "no" if f.name in table.required else "yes"
        personal = " **Personal data.**" if f.name in table.pii else ""
        yield f"| `{f.name}` | `{f.dataType.simpleString()}` | {nulls} | {cell(f.metadata.get('comment', ''))}.{personal} |"
    if table.rules:
        yield from ("", "| Rule | A row passes where |", "|---|---|")
        yield from (f"| `{rule.name}` | {cell(rule.describes)} |" for rule in table.rules)
    yield from ("", "| Check | Meaning |", "|---|---|")
    yield from (f"| `{spec.name}` | {cell(spec.description or '')} |" for spec in check_specs(table))


def _span(span: timedelta) -> str:
    minutes = span.total_seconds() / 60
    for unit, size in (("day", 1440), ("hour", 60), ("minute", 1)):
        if minutes % size == 0 and minutes >= size:
            return f"{minutes / size:g} {unit}{'' if minutes == size else 's'}"
    return f"{minutes:g} minutes"


# --- words of a contract

# Where each value is written, in the order of the page: a heading, what is said below it, and the classes.
PARTS: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    (
        "Inputs",
        "Each parameter of the transform is an input: a table, landed files, a table of a database, or topics.",
        {
            "Input": 'inputs={"orders": Input("silver.orders")}',
            "Landing": 'inputs={"lines": Landing("tills", "csv", ("till", "sold_at", "amount"))}',
            "Extract": 'inputs={"rows": Extract("orders", "orders", …)}',
            "Topic": 'inputs={"messages": Topic("clicks", ("web-clicks",), ("user", "clicked_at"), time="clicked_at")}',
        },
    ),
    (
        "Policy",
        "The policy has five groups. Each has defaults, and a table file says only what differs.",
        {
            "Quality": 'quality=Quality(max_null_rate={"order_id": 0.05})',
            "Volume": "quality=Quality(volume=Volume(max_ratio=10.0))",
            "Anomalies": 'quality=Quality(profile=("amount",), anomalies=Anomalies())',
            "Quarantine": "quarantine=Quarantine(max_share=0.4)",
            "Freshness": "freshness=Freshness(within=timedelta(hours=12))",
            "Privacy": 'privacy=Privacy(person=("user_id",))',
            "Layout": "layout=Layout(files_per_day=4)",
            "SliceBy": 'layout=Layout(slice_by=SliceBy(("user_id",)))',
        },
    ),
    ("Event times", "", {"Clock": 'clock=Clock("event_time")'}),
    (
        "Features",
        "Rows that say what was known at the end of a day. They are joined by time, [for training](../how-to/training-sets.md).",
        {"Features": 'features=Features(entity="user", key=("user_id",), ttl=timedelta(days=7))'},
    ),
    (
        "Figures",
        "Figures of the business are counted as a day is published, and plotted on the asset and in the report.",
        {"Sum": 'figures={"revenue": Sum("net_revenue", by="currency")}', "Count": 'figures={"users": Count()}'},
    ),
)
# Written otherwise in a table file than a loaded table holds them.
_SHORT = ("inputs", "partition_by", "reconciles", "lineage")


def contract_page() -> str:
    """What a table file can say: the keywords of `@table`, and every class whose values they take."""
    from lakehouse import contracts
    from lakehouse.contracts import rules

    lines = [
        "# Contract",
        "",
        "A table file declares a pandera model, a policy and a transform. [Add a table](../how-to/add-a-table.md) shows one.",
        "This page lists every word that a table file may use. All of them are imported from `lakehouse.contracts`. Mistakes",
        "(a wrong name, a missing column, a policy that does not fit) are reported when the tables are loaded, all at once,",
        "each with file, line and word.",
        "",
        "## Row rules",
        "",
        "A check of pandera gives a rule named after the column and the kind of check, as below. A column that must not be",
        "null breaks each of its checks where it is null; one without a check gives the rule `<column>_present`.",
        "",
        "| pandera check | Rule |",
        "|---|---|",
        *(f"| `{name}` | `<column>_{ending}` |" for name, (ending, _) in rules._FIELD_CHECKS.items()),  # noqa: SLF001
        "",
        "`pa.Field` has short names for some: `eq`, `ne`, `gt`, `ge`, `lt` and `le` are the first six.",
        "",
        "A rule over several columns is a method with `@rule`. It returns a boolean column. Its name is the rule's name,",
        "and its docstring is what people read. A row passes only where the expression is true; null is a failure.",
        "",
        *_keywords(contracts.table, contracts.Table),
        "",
        *_bronze(contracts.BronzeModel),
    ]
    values = {name for name in contracts.__all__ if dataclasses.is_dataclass(getattr(contracts, name))}
    # A Table is what `@table` makes, a Rule what a model compiles to; nobody writes one.
    if left_out := values - {"Table", "Rule"} - {name for _, _, written in PARTS for name in written}:
        raise RuntimeError(f"docs/generate.py: PARTS has no place for {', '.join(sorted(left_out))}.")
    for heading, about, written in PARTS:
        lines += ["", f"## {heading}", *(["", about] if about else [])]
        for name, example in written.items():
            lines += ["", *_declared(getattr(contracts, name), example)]
    return "\n".join([*lines, ""])


def _keywords(declare: Callable[..., Any], made: type) -> Iterator[str]:
    """The keywords of `@table`: defaults from its signature, meanings from the class that it makes."""
    from lakehouse.contracts.code import POLICY
    from lakehouse.contracts.declare import GROUPS

    _, short = split_docstring(declare, "Args")
    _, meanings = split_docstring(made)
    yield from (
        "## @table",
        "",
        "The keywords of `@table`. A column of an input is written as `parameter.column`, or as `column` alone if there is",
        "one input. The last column says whether another value makes the published days",
        "[stale](../explanation/stale-days.md).",
        "",
        "| Keyword | Default | Meaning | Stale |",
        "|---|---|---|---|",
    )
    for name, each in inspect.signature(declare).parameters.items():
        meaning = short[name] if name in _SHORT else meanings[name]
        default = "required" if each.default is inspect.Parameter.empty else f"`{each.default!r}`"
        if name in GROUPS:
            group = GROUPS[name].__name__
            default = f"[`{group}()`](#{_anchor(group)})"
        elif default in ("`None`", "`()`"):
            default = "none"
        yield f"| `{name}` | {default} | {cell(meaning)} | {'no' if name in POLICY else 'yes'} |"


def _bronze(model: Any) -> Iterator[str]:
    columns = model.to_schema().columns
    yield from (
        "## BronzeModel",
        "",
        "The base of the model of a bronze table that reads landed files. It adds these columns:",
        "",
        "| Column | Type | Nulls | Meaning |",
        "|---|---|---|---|",
    )
    for name, each in columns.items():
        kind = each.dtype.type.simpleString()
        yield f"| `{name}` | `{kind}` | {'yes' if each.nullable else 'no'} | {cell(each.description or '')} |"


def _declared(made: type, example: str) -> Iterator[str]:
    about, meanings = split_docstring(made)
    yield from (f"### {made.__name__}", "", paragraphs(about), "", "```python", example, "```", "")
    listed = dataclasses.fields(made)
    if meanings:
        yield from ("| Field | Default | Meaning |", "|---|---|---|")
        yield from (f"| `{each.name}` | {_default(each)} | {cell(meanings.get(each.name, ''))} |" for each in listed)
    else:  # its docstring says it all
        yield from ("| Field | Default |", "|---|---|", *(f"| `{each.name}` | {_default(each)} |" for each in listed))


def split_docstring(made: Any, heading: str = "Attributes") -> tuple[str, dict[str, str]]:
    """A docstring without its `Attributes:` or `Args:`, and the text of each of them."""
    about, _, listed = inspect.cleandoc(made.__doc__ or "").partition(f"\n{heading}:\n")
    listed = listed.partition("\nRaises:\n")[0]
    meanings: dict[str, str] = {}
    for entry in re.split(r"\n(?=    \w[\w, ]*:)", f"\n{listed}"):
        names, _, text = entry.strip().partition(":")
        meanings |= {name.strip(): " ".join(text.split()) for name in names.split(",") if text}
    return about, meanings


def _default(each: Any) -> str:
    if each.default is dataclasses.MISSING:
        return "required" if each.default_factory is dataclasses.MISSING else "none"
    if each.default in (None, (), ""):
        return "none"
    shown = _span(each.default) if isinstance(each.default, timedelta) else repr(each.default)
    if len(shown) > 40 and isinstance(each.default, tuple):  # noqa: PLR2004 - of a table's column
        return ", ".join(f"`{word}`" for word in each.default)
    return f"`{shown}`"


def _anchor(title: str) -> str:
    """The address of a heading, as Markdown makes it."""
    return re.sub(r"[^\w-]", "", title.lower())


PAGES: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands_page,
    "reference/settings.md": settings_page,
    "reference/tables.md": tables_page,
    "reference/contract.md": contract_page,
    "reference/code-map.md": code_map_page,
    "images/code-map.svg": code_map_svg,
}
