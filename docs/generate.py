"""Pages of the site that are made from the code: commands, settings, tables, contract words, code map.

MkDocs calls the `on_…` functions: they are the `hooks` of mkdocs.yml.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docs.code_map import code_map_page, code_map_svg
from docs.texts import cell, paragraphs

if TYPE_CHECKING:
    import click
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

    from lakehouse.contracts import Table

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
    words = " ".join(
        each.metavar or f"{each.name.upper() if each.required else f'[{each.name.upper()}]'}" for each in arguments
    )
    lines = ["```console", f"$ {name} {words}{' ' if words else ''}[OPTIONS]", "```", ""]
    if arguments or options:
        lines += ["| Argument or option | Meaning |", "|---|---|"]
    lines += [
        f"| `{(each.metavar or each.name.upper()).strip('[].')}` | {cell(getattr(each, 'help', '') or '')} |"
        for each in arguments
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
        "Settings are environment variables. They may also stand in a `.env` file (copy `.env.example`), or in `lake.env`",
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
        "These are the tables of the sample. `lakehouse tables` lists yours, and `lakehouse describe TABLE` shows one.",
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
    days = {each.table: each.days_before for each in table.upstream.values()}
    return ", ".join(f"`{name}`" + (f" and {days[name]} days before" if days[name] else "") for name in days)


def _table(table: Table) -> Iterator[str]:
    from lakehouse.orchestration.checks import check_specs

    about = inspect.cleandoc(table.model.__doc__ or "")
    yield from (f"## {table.id}", "", about, "", f"File: `lakehouse/{table.layer}/{table.name}.py`.", "")
    policy = {
        "One row is": table.grain,
        "Owner": f"`{table.owner}`",
        "Inputs": _inputs(table),
        "Partitions": ", ".join(f"`{c}`" for c in table.partition_by),
        "Key": ", ".join(f"`{c}`" for c in table.key),
        "Fresh within": _span(table.freshness.within),
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
    hours = span.total_seconds() / 3600
    return f"{hours / 24:g} days" if hours % 24 == 0 else f"{hours:g} hours"


# --- words of a contract


def contract_page() -> str:
    """What a table file can say: every declared class of `lakehouse.contracts` with its fields."""
    from lakehouse import contracts
    from lakehouse.contracts import rules

    lines = [
        "# Contract",
        "",
        "A table file declares a pandera model, a policy and a transform. [Add a table](../how-to/add-a-table.md) shows one.",
        "This page lists every word of the policy. A wrong name, a missing column or a policy that does not fit is refused",
        "when the file is loaded, with the name of the file.",
        "",
        "## Row rules",
        "",
        "A column that must not be null gives the rule `<column>_present`. A check of pandera gives a rule named after the",
        "column and the kind of check:",
        "",
        "| pandera check | Rule |",
        "|---|---|",
        *(f"| `{name}` | `<column>_{ending}` |" for name, (ending, _) in rules._FIELD_CHECKS.items()),  # noqa: SLF001
        "",
        "A rule over several columns is a method with `@rule`. It returns a boolean column, and its name is the rule's name.",
        "A row passes only where the expression is true; null is a failure.",
    ]
    found = [getattr(contracts, name) for name in sorted(contracts.__all__)]
    # A Rule is what a model compiles to; nobody declares one.
    classes = [
        each for each in found if inspect.isclass(each) and dataclasses.is_dataclass(each) and each.__name__ != "Rule"
    ]
    for each in sorted(classes, key=lambda c: c.__name__ != "Table"):
        lines += ["", *_declared(each)]
    return "\n".join([*lines, ""])


def _declared(made: type) -> Iterator[str]:
    about, meanings = split_docstring(made)
    yield from (f"## {made.__name__}", "", paragraphs(about), "")
    listed = dataclasses.fields(made)
    if meanings:
        yield from ("| Field | Default | Meaning |", "|---|---|---|")
        yield from (f"| `{each.name}` | {_default(each)} | {cell(meanings.get(each.name, ''))} |" for each in listed)
    else:  # its docstring says it all
        yield from ("| Field | Default |", "|---|---|", *(f"| `{each.name}` | {_default(each)} |" for each in listed))


def split_docstring(made: type) -> tuple[str, dict[str, str]]:
    """A class's docstring without its `Attributes:`, and the text of each attribute."""
    about, _, listed = inspect.cleandoc(made.__doc__ or "").partition("\nAttributes:\n")
    meanings: dict[str, str] = {}
    for entry in re.split(r"\n(?=    \w[\w, ]*:)", f"\n{listed}"):
        names, _, text = entry.strip().partition(":")
        meanings |= {name.strip(): " ".join(text.split()) for name in names.split(",") if text}
    return about, meanings


def _default(each: Any) -> str:
    if each.default is not dataclasses.MISSING:
        shown = _span(each.default) if isinstance(each.default, timedelta) else repr(each.default)
        return f"`{shown}`" if len(shown) <= 40 else "see the code"  # noqa: PLR2004 - of a table's column
    return "none" if each.default_factory is not dataclasses.MISSING else "required"


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
