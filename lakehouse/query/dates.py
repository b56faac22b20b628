"""Functions of dates and times, whose meaning in DuckDB is Spark's, or is made so."""

from __future__ import annotations

from lakehouse.query.kinds import DATE, INTEGER, STRING, TIMESTAMP, text
from lakehouse.query.sql_text import NotTranslatedError
from lakehouse.query.values import ASK, Make, Value, cast, of_kind, places_of

_DATE_PARTS = {
    "year": "year({})", "quarter": "quarter({})", "month": "month({})", "day": "day({})", "dayofmonth": "day({})",
    "dayofyear": "dayofyear({})", "weekofyear": "weekofyear({})", "week": "weekofyear({})",
    "dayofweek": "dayofweek({}) + 1", "weekday": "isodow({}) - 1",
}  # fmt: skip
_TIME_PARTS = {name: f"{name}({{}})" for name in ("hour", "minute", "second")}
_TRUNCATED = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"), "quarter": "quarter",
    **dict.fromkeys(("month", "mon", "mm"), "month"), "week": "week", "day": "day", "dd": "day",
    "hour": "hour", "minute": "minute", "second": "second",
}  # fmt: skip


def _part(form: str) -> Make:
    def make(value: Value) -> Value:
        kinds = (TIMESTAMP,) if form in _TIME_PARTS.values() else (DATE, TIMESTAMP)
        return Value(cast(form.format(of_kind(value, *kinds)), INTEGER), INTEGER)

    return make


def extracted(part: str, value: Value) -> Value:
    """`EXTRACT(part FROM value)`."""
    form = _DATE_PARTS.get(part) or _TIME_PARTS.get(part)
    if form is None or part in ("second", "weekofyear", "weekday", "dayofmonth"):
        raise NotTranslatedError(f"EXTRACT({part.upper()} FROM …)")
    return _part(form)(value)


def _unit(value: Value, *, of_days: bool) -> str:
    found = _TRUNCATED.get((value.literal or "").lower())
    if found is None or (of_days and found in ("day", "hour", "minute", "second")):
        raise NotTranslatedError(f"truncation to {value.literal!r}")
    return text(found)


def _date_trunc(unit: Value, value: Value) -> Value:
    moment = cast(of_kind(value, DATE, TIMESTAMP), TIMESTAMP)
    return Value(f"date_trunc({_unit(unit, of_days=False)}, {moment})", TIMESTAMP)


def _trunc(value: Value, unit: Value) -> Value:
    return Value(cast(f"date_trunc({_unit(unit, of_days=True)}, {of_kind(value, DATE)})", DATE), DATE)


def _days_on(sign: str) -> Make:
    return lambda value, days: Value(f"({of_kind(value, DATE)} {sign} {of_kind(days, INTEGER)})", DATE)


def _day_of(value: Value) -> Value:
    return Value(cast(of_kind(value, DATE, TIMESTAMP), DATE), DATE)


def _datediff(end: Value, start: Value) -> Value:
    return Value(cast(f"{_day_of(end).sql} - {_day_of(start).sql}", INTEGER), INTEGER)


def _add_months(value: Value, months: Value) -> Value:
    (number,) = places_of(months, least=0)
    return Value(cast(f"{of_kind(value, DATE)} + INTERVAL {number} MONTH", DATE), DATE)


_TOKENS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


def _date_format(value: Value, pattern: Value) -> Value:
    made, left = "", pattern.literal or "?"
    while left:
        token = next((each for each in _TOKENS if left.startswith(each)), None)
        if token is None and left[0] not in "-/: .":
            raise NotTranslatedError(f"date_format with {pattern.literal!r}")
        size = len(token) if token else 1
        if token and left[size:].startswith(token[0]):  # `MMM` is another token
            raise NotTranslatedError(f"date_format with {pattern.literal!r}")
        made += _TOKENS[token] if token else left[0]
        left = left[size:]
    moment = cast(of_kind(value, DATE, TIMESTAMP), TIMESTAMP)
    ordinary = f"year({moment}) BETWEEN 1000 AND 9999"
    said = f"strftime({moment}, {text(made)})"
    return Value(f"(CASE WHEN {ordinary} THEN {said} WHEN {moment} IS NULL THEN NULL ELSE {ASK} END)", STRING)


DATES: dict[str, Make] = {
    **{name: _part(form) for name, form in {**_DATE_PARTS, **_TIME_PARTS}.items() if name != "week"},
    "date_trunc": _date_trunc,
    "trunc": _trunc,
    "date_add": _days_on("+"),
    "dateadd": _days_on("+"),
    "date_sub": _days_on("-"),
    "datediff": _datediff,
    "date_diff": _datediff,
    "add_months": _add_months,
    "last_day": lambda value: Value(f"last_day({of_kind(value, DATE)})", DATE),
    "to_date": _day_of,
    "date_format": _date_format,
}
