"""Samples of landed sources: functions that a `Landing` names, which make files for a demonstration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import date
from importlib import import_module
from pathlib import Path

from lakehouse.contracts import Landing
from lakehouse.errors import ContractError, GeneratorError
from lakehouse.sources.landing import Landed

Sample = Callable[..., list[Landed]]
"""Called with root, first day, number of days, lines a day and seed; the rest are texts, by keyword alone."""


def land_sample(
    landing: Landing, root: Path, start: date, days: int, rows: int, seed: int, options: Mapping[str, str]
) -> list[Landed]:
    """Land made-up files of a source, by day and file.

    Args:
        landing: The source.
        root: Lakehouse root.
        start: First arrival day.
        days: Number of days, 1 or more.
        rows: Lines a day.
        seed: The same seed gives the same files.
        options: What else its sample can vary in, as text by name.

    Raises:
        ContractError: `sample` names no function.
        GeneratorError: The source has no sample, or its sample not such an option, or a value is out of bounds.
    """
    if landing.sample is None:
        raise GeneratorError(f"{landing.source} has no sample: give a folder of its files")
    make = _function(landing.sample, landing.source)
    known = [each.name for each in inspect.signature(make).parameters.values() if each.kind is each.KEYWORD_ONLY]
    if unknown := sorted(set(options) - set(known)):
        has = f"it has {', '.join(f'--{name}' for name in known)}" if known else "it has none"
        raise GeneratorError(f"the sample of {landing.source} has no --{unknown[0]}; of such options {has}")
    return make(root, start, days, rows, seed, **options)


def _function(name: str, source: str) -> Sample:
    module, _, function = name.partition(":")
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ContractError(f"The sample of {source} names {name}, which cannot be loaded: {error}") from error
    made: Sample = found
    return made
