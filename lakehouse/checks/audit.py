"""The audit between stage and publish: table-level checks over a day's figures.

A check that fails keeps its day from being published, unless its outcome only warns (`Outcome.blocking`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from functools import partial

from lakehouse.checks.anomalies import Figures, SoFar, drift_checks, drifts, volume
from lakehouse.checks.batches import BATCH_CHECKS, batch_checks
from lakehouse.checks.drift import schema_drift
from lakehouse.checks.metrics import WARNS_ONLY, DayMetrics, Outcome, Value
from lakehouse.checks.statistics import exceeds, lateness, percentile
from lakehouse.contracts import Table
from lakehouse.contracts.clock import CLOCKS_CHECK
from lakehouse.contracts.figures import EXACT
from lakehouse.contracts.rules import NOT_TOO_LATE
from lakehouse.records.depth import DEPTH_CHECK
from lakehouse.texts import counted


def check_names(table: Table) -> dict[str, str]:
    """The table's checks with what each one means, derived from its contract."""
    low, high = table.quality.min_rows, table.quality.max_rows
    return {
        "row_count": f"A day with input publishes at least {low} rows" + (f", at most {high}" if high else ""),
        "null_rates": "Share of nulls a column within the contract's bounds, and none where none may be",
        "row_rules": f"At most {table.quarantine.max_share:.0%} of a day's rows break a row rule",
        **_names_of_depth(table),
        **_names_of_key(table),
        **_names_of_source(table),
        **_names_of_days(table),
        **drift_checks(table),
        **batch_checks(table),
    }


def _names_of_depth(table: Table) -> dict[str, str]:
    rows, age = table.quarantine.max_rows, table.quarantine.max_age
    ages = table.quarantine.max_ages
    if not table.rules or (rows is None and age is None and not ages):
        return {}
    bounds = [f"at most {rows:,} rows"] if rows is not None else []
    bounds += [f"none for longer than {age.total_seconds() / 86400:g} days"] if age is not None else []
    bounds += [
        f"none that broke {rule} for longer than {most.total_seconds() / 86400:g} days" for rule, most in ages.items()
    ]
    return {DEPTH_CHECK: f"The quarantine holds {', '.join(bounds)}; judged after publishing, which it never blocks"}


def _names_of_key(table: Table) -> dict[str, str]:
    if not table.key:
        return {}
    more = "; repeats are counted and left out" if table.keep_first_by else ""
    return {"unique_key": f"({', '.join(table.key)}) identifies a row{more}"}


def _names_of_source(table: Table) -> dict[str, str]:
    named: dict[str, str] = {}
    if table.conserves_rows or table.landing:
        named["row_conservation"] = "Rows in = published + quarantined + duplicates"
    if table.landing:
        named["source_readable"] = (
            "Every landed file of the day can be read to its end and has its columns; warns of bytes that are no text"
        )
        named["schema_drift"] = f"Every field that arrives has a column, and no column's field stays away{WARNS_ONLY}"
    return named


def _names_of_days(table: Table) -> dict[str, str]:
    """The checks that look at other days, other tables and other clocks."""
    named: dict[str, str] = {}
    if table.quality.volume:
        named["volume"] = f"Rows against the median of the last {table.quality.volume.history} same weekdays with rows"
    if table.reconciles and not table.upsert:
        sums = (f"{own} to {name}.{column}" for own, (name, column) in table.reconciles.items())
        named["reconciliation"] = f"Sums of the day agree: {', '.join(sums)}"
    if table.quality.max_shares:
        bounds = (f"{own} at most {most:.0%} of {of}" for own, (of, most) in table.quality.max_shares.items())
        named["shares"] = f"Sums of the day: {', '.join(bounds)}{WARNS_ONLY}"
    if table.allowed_lateness is not None:
        days = table.allowed_lateness.days
        named["lateness"] = (
            f"At most {table.quality.max_late:.0%} of a day's rows arrive more than {days} days after their day"
        )
    if table.clock:
        minutes = table.clock.ahead.total_seconds() / 60
        named[CLOCKS_CHECK] = (
            f"No producer's clock is wrong: at most {table.clock.max_wrong:.1%} of its rows of a day have an "
            f"impossible time, or are ahead of their arrival by up to more than {minutes:g} minutes; "
            "judged after publishing, which it never blocks"
        )
    return named


def blocking_checks(table: Table) -> frozenset[str]:
    """The checks that keep a day from being published where they fail; the others only warn.

    One of them may still let a small excess pass with a warning, as the volume does.
    """
    never = {DEPTH_CHECK, CLOCKS_CHECK, "schema_drift", "lateness", "shares", *batch_checks(table)}
    anomalies = table.quality.anomalies
    drifting = set(drift_checks(table)) if anomalies is None or not anomalies.block else set()
    return frozenset(check_names(table)) - never - drifting


def audit_day(
    table: Table,
    metrics: DayMetrics,
    history: Mapping[date, int],
    figures: Mapping[date, Figures] | None = None,
    sums: Mapping[str, Decimal] | None = None,
    *,
    so_far: SoFar | None = None,
    reached: bool = True,
) -> list[Outcome]:
    """Every check of the table on one day.

    Args:
        table: whose contract sets the bounds.
        metrics: the day's figures.
        history: published rows by day; the tested day itself is never part of its own baseline.
        figures: further figures by day, as commits keep them.
        sums: what the table's own columns must add up to on this day, where the input's figures are known.
        so_far: of a day that is not over, tells the rows that earlier days had by this time of day; None: it is over.
        reached: False of a day that a stream which is behind has not come to: what is there came without a time.
    """
    run: dict[str, Callable[[Table, DayMetrics], Outcome]] = {
        "row_count": partial(_row_count, is_open=so_far is not None),
        "null_rates": _null_rates,
        "row_rules": partial(_row_rules, reached=reached),
        "unique_key": _unique_key,
        "row_conservation": _row_conservation,
        "source_readable": _source_readable,
        "shares": _shares,
        **BATCH_CHECKS,
    }
    names = check_names(table)
    outcomes = [run[name](table, metrics) for name in names if name in run]
    if table.landing:
        outcomes.append(schema_drift(metrics))
    if table.quality.volume:
        known = table.quality.known_events
        outcomes.append(volume(table.quality.volume, metrics, history, known, so_far=so_far))
    if "reconciliation" in names:
        outcomes.append(_reconciliation(table, metrics, sums or {}))
    if table.allowed_lateness is not None:
        outcomes.append(_lateness(table, metrics))
    return outcomes + drifts(table, metrics, figures or {})


def _lateness(table: Table, m: DayMetrics) -> Outcome:
    """Of a landed table's arrival day from the days its rows belong to; of others by the rows set aside as late."""
    assert table.allowed_lateness is not None
    allowed = table.allowed_lateness.days
    values: dict[str, Value] = {}
    if table.landing:
        # Rows dated after their arrival have negative days: they pull no percentile up.
        counted = lateness(m.day, m.event_days)
        judged, late = counted.total(), sum(rows for days, rows in counted.items() if days > allowed)
        p50, p95, p99 = (percentile(counted, share) for share in (0.5, 0.95, 0.99))
        values |= {"late_days/p50": p50, "late_days/p95": p95, "late_days/p99": p99}
        values |= {"rows_of_earlier_days": sum(rows for days, rows in counted.items() if days > 0)}
        values |= {"rows_of_later_days": sum(rows for days, rows in counted.items() if days < 0)}
        text = f"; days late: p50 {p50}, p95 {p95}, p99 {p99}"
    else:
        judged, late, text = m.rows + m.quarantined, m.failures.get(NOT_TOO_LATE, 0), ""
    share = late / judged if judged else 0.0
    values |= {"late_rows": late, "share_late": round(share, 6)}
    most = table.quality.max_late
    told = f"{late} of {judged} rows came more than {allowed} days late ({share:.2%}; at most {most:.0%}){text}"
    return Outcome("lateness", m.day, not exceeds(late, judged, most), told, blocking=False, values=values)


def _row_count(table: Table, m: DayMetrics, *, is_open: bool) -> Outcome:
    # A day that nothing came for is no failure of the lower bound: there is nothing to publish and nothing to fix.
    empty = m.staged == 0 and not m.rows_in
    high = table.quality.max_rows
    # The rows that are missing may come yet, and those that are there are good.
    enough = is_open or m.rows >= table.quality.min_rows
    passed = empty or (enough and (high is None or m.rows <= high))
    bounds = f"at least {table.quality.min_rows}" + (f" and at most {high}" if high is not None else "")
    text = "empty day: no input" if empty else f"{counted(m.rows, 'row')} published; expected {bounds}"
    if is_open and not empty:
        text += "; the day is not over"
    return Outcome("row_count", m.day, passed, text, values={"rows": m.rows})


def _null_rates(table: Table, m: DayMetrics) -> Outcome:
    bounds = dict.fromkeys(table.required, 0.0) | dict(table.quality.max_null_rate)
    # Of the published rows alone: rows that broke a rule are judged by their share.
    rates = {name: count / m.rows for name, count in m.nulls.items()} if m.rows else {}
    broken = [
        f"{name} is null in {rates[name]:.1%} of rows; at most {bound:.1%} may be"
        for name, bound in bounds.items()
        if exceeds(m.nulls.get(name, 0), m.rows, bound)
    ]
    # Told also where all is well, so that whoever looks sees how far from the bound it is.
    worst = max(rates, key=lambda name: rates[name], default=None)
    text = "; ".join(broken) or (f"highest: {worst} {rates[worst]:.1%}" if worst else "no rows")
    values: dict[str, Value] = {f"null_rate/{k}": round(v, 6) for k, v in rates.items() if v or k in bounds}
    return Outcome("null_rates", m.day, not broken, text, values=values)


def _row_rules(table: Table, m: DayMetrics, *, reached: bool) -> Outcome:
    judged = m.rows + m.quarantined
    broken = max(0, m.quarantined - m.failures.get(NOT_TOO_LATE, 0))  # late rows are no bad rows
    share = broken / judged if judged else 0.0
    by_rule = ", ".join(f"{name} {n}" for name, n in sorted(m.failures.items(), key=lambda kv: -kv[1]))
    text = f"{broken} of {judged} rows quarantined ({share:.2%}; at most {table.quarantine.max_share:.0%})"
    values: dict[str, Value] = {"quarantined": m.quarantined, "share_quarantined": round(share, 6)}
    values |= {f"failed/{name}": n for name, n in m.failures.items()}
    # Rows without a time are of the day they arrived on. Of a stream that is behind, the good ones are yet to come.
    passed = not reached or not exceeds(broken, judged, table.quarantine.max_share)
    if not reached:
        text += "; the stream has not come to this day"
    return Outcome("row_rules", m.day, passed, f"{text}: {by_rule}" if by_rule else text, values=values)


def _unique_key(table: Table, m: DayMetrics) -> Outcome:
    # A table that says which row to keep expects repeats; one that does not has a transform that went wrong.
    passed = bool(table.keep_first_by) or m.duplicates == 0
    verb = "repeats" if m.duplicates == 1 else "repeat"
    text = f"{counted(m.duplicates, 'row')} {verb} a key ({', '.join(table.key)})"
    if m.duplicates:
        text += "; the first of each is kept" if table.keep_first_by else "; the transform must give one row a key"
    return Outcome("unique_key", m.day, passed, text, values={"duplicates": m.duplicates})


def _row_conservation(_: Table, m: DayMetrics) -> Outcome:
    # Counted apart from the write: a join that doubles rows, or a filter that loses some, cannot hide it.
    expected = m.rows_in or 0
    text = (
        f"{expected} in = {m.rows} published + {m.quarantined} quarantined + {m.duplicates} duplicates"
        if expected == m.staged
        else f"{expected} rows came in but {m.staged} went out "
        f"({m.rows} published, {m.quarantined} quarantined, {m.duplicates} duplicates)"
    )
    return Outcome(
        "row_conservation", m.day, expected == m.staged, text, values={"rows_in": expected, "rows_out": m.staged}
    )


def _reconciliation(table: Table, m: DayMetrics, sums: Mapping[str, Decimal]) -> Outcome:
    """Exact, in decimals. What quarantined rows lack is said but blocks nothing: their share has a bound of its own."""
    own = {name: m.profile.total(name) for name in table.reconciles}
    apart = [
        f"{name} is {own[name]}, but {source}.{column} is {sums[name]}: {EXACT.subtract(own[name], sums[name])} apart"
        for name, (source, column) in table.reconciles.items()
        if name in sums and own[name] != sums[name]
    ]
    told = [f"{name} {own[name]} on both sides" for name in sums]
    told += [f"{name} not judged: no figures are kept of its input" for name in own if name not in sums]
    values: dict[str, Value] = {f"sum/{name}": str(total) for name, total in own.items()}
    aside = f" ({counted(m.quarantined, 'row')} in quarantine)" if apart and m.quarantined else ""
    text = "; ".join(apart or told) + aside
    return Outcome("reconciliation", m.day, not apart, text, blocking=not m.quarantined, values=values)


def _shares(table: Table, m: DayMetrics) -> Outcome:
    told, values, broken = [], dict[str, Value](), False
    for own, (of, most) in table.quality.max_shares.items():
        part, whole = m.profile.total(own), m.profile.total(of)
        share = part / whole if whole else Decimal(0)
        broken |= part > whole * Decimal(str(most))
        told.append(f"{own} {part} of {of} {whole} ({share:.2%}; at most {most:.0%})")
        values[f"share/{own}"] = round(float(share), 6)
    return Outcome("shares", m.day, not broken, "; ".join(told), blocking=False, values=values)


def _source_readable(_: Table, m: DayMetrics) -> Outcome:
    told = [*m.problems, *m.doubts]
    text = "; ".join(told) or "all files read to their end"
    return Outcome("source_readable", m.day, not told, text, blocking=bool(m.problems))
