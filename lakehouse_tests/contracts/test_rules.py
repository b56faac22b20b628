"""Row rules: the compiled form says of every row what pandera says, and names are API."""

from __future__ import annotations

import random
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pandera.backends.pyspark.builtin_checks  # noqa: F401 - registers the check functions called below
import pandera.pyspark as pa
import pytest
from pandera.api.checks import Check
from pandera.api.pyspark.types import PysparkDataframeColumnObject
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.contracts import rule
from lakehouse.contracts.rules import compile_rules, lateness_rule
from lakehouse.errors import ContractError
from lakehouse_tests.fixtures.making import model

SEED = random.Random().randrange(1 << 30)
ROWS = 200

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
NUMBERS: dict[str, tuple[T.DataType, Any]] = {
    "long": (T.LongType(), lambda r: r.choice([r.randint(-6, 6), 3, 2**53 + 1, -(2**63), 2**63 - 1])),
    "int": (T.IntegerType(), lambda r: r.choice([r.randint(-6, 6), 3, 2**31 - 1, -(2**31)])),
    "decimal": (T.DecimalType(18, 2), lambda r: Decimal(r.choice([r.randint(-600, 600), 300, 301, 299])) / 100),
    "double": (T.DoubleType(), lambda r: r.choice([r.uniform(-6, 6), 3.0, -0.0, float("nan"), float("inf")])),
    "date": (T.DateType(), lambda r: NOON.date() + timedelta(days=r.randint(-3, 3))),
    "timestamp": (T.TimestampType(), lambda r: NOON + timedelta(microseconds=r.randint(-2, 2))),
}
TEXTS = [
    "",
    " ",
    "a",
    "A",
    "ab",
    "abc",
    "xabc",
    "GBP",
    "gbp",
    "GBP ",
    "a.c",
    "a\nb",
    "é",
    "日本語",
    "😀",
    "a%_\\b",
    "null",
]
STRING = (T.StringType(), lambda r: r.choice(TEXTS))
BOUNDS: dict[str, Any] = {
    "long": 3, "int": 3, "decimal": Decimal("3.00"), "double": 3.0, "date": NOON.date(), "timestamp": NOON,
}  # fmt: skip


def _range(low: Any, high: Any, **sides: bool) -> dict[str, Any]:
    return {"in_range": {"min_value": low, "max_value": high, **sides}}


def _cases() -> dict[str, tuple[T.DataType, Any, dict[str, Any]]]:
    """Column name → type, generator of values, and the keyword of `pa.Field` under test."""
    cases: dict[str, tuple[T.DataType, Any, dict[str, Any]]] = {}
    for kind, (dtype, make) in NUMBERS.items():
        limit = BOUNDS[kind]
        step = timedelta(days=1) if kind == "date" else timedelta(microseconds=1) if kind == "timestamp" else 1
        fields = {check: {check: limit} for check in ("eq", "ne", "gt", "ge", "lt", "le")}
        fields |= {check: {check: [limit, limit + step]} for check in ("isin", "notin")}
        fields |= {
            "within": _range(limit - step, limit),
            "inside": _range(limit - step, limit + step, include_min=False, include_max=False),
        }
        cases |= {f"{kind}_{check}": (dtype, make, field) for check, field in fields.items()}
    strings: dict[str, dict[str, Any]] = {
        "eq": {"eq": "GBP"},
        "ne": {"ne": "GBP"},
        "isin": {"isin": ["GBP", "a", ""]},
        "notin": {"notin": ["GBP", "a", ""]},
        "matches": {"str_matches": "a.?[bc]"},
        "anchored": {"str_matches": re.compile("^[a-z]+$")},
        "alternatives": {"str_matches": "x|b"},
        "contains": {"str_contains": "b[c]?"},
        "dot": {"str_contains": r"a\.c"},
        "starts": {"str_startswith": "a"},
        "starts_wild": {"str_startswith": "a%_\\"},
        "ends": {"str_endswith": "c"},
        "between": {"str_length": {"min_value": 1, "max_value": 2}},
        "longer": {"str_length": {"min_value": 2}},
        "shorter": {"str_length": {"max_value": 1}},
        "exactly": {"str_length": {"exact_value": 3}},
    }
    cases |= {f"text_{check}": (*STRING, field) for check, field in strings.items()}
    return cases


CASES = _cases()


def _contract(nullable: bool) -> type[pa.DataFrameModel]:
    return model(**{name: (dtype, pa.Field(nullable=nullable, **kw)) for name, (dtype, _, kw) in CASES.items()})


class _Recorder:
    """Stands in for the frame of a pandera check: keeps the condition of the rows that the check looks for."""

    def filter(self, condition: Column) -> _Recorder:
        self.condition = condition
        return self

    def limit(self, _: int) -> _Recorder:
        return self

    def count(self) -> int:
        return 0


def _pandera_rejects(check: Check, column: str) -> Column:
    """Whether pandera's own check function filters the row out as a failure (a filter takes only TRUE)."""
    recorder = _Recorder()
    check._check_fn(PysparkDataframeColumnObject(recorder, column), **check._check_kwargs)  # type: ignore[arg-type]
    return F.coalesce(recorder.condition, F.lit(False))


@pytest.mark.parametrize("nullable", [True, False])
def test_compiled_rules_agree_with_pandera_row_by_row(spark: SparkSession, nullable: bool) -> None:
    """Without it, a rule could let pass what the contract forbids (or the reverse) for some type or null.

    Pandera decides by `filter(condition).count() == 0`, a job a check. Its own check functions are called on a recorder,
    so that the conditions of all checks are evaluated over all random rows in one job; the test below proves on real
    validations that this is what pandera does.
    """
    chance = random.Random(SEED)
    contract = _contract(nullable)
    rows = [
        tuple(None if chance.random() < 0.1 else make(chance) for _, make, _ in CASES.values()) for _ in range(ROWS)
    ]
    frame = spark.createDataFrame(rows, T.StructType([T.StructField(n, t) for n, (t, _, _) in CASES.items()]))
    ours = {name: each for each in compile_rules(contract) for name in CASES if _is_rule_of(each.name, name)}
    assert set(ours) == set(CASES)
    verdicts = []
    for name, column in contract.to_schema().columns.items():
        (check,) = column.checks
        rejected = _pandera_rejects(check, name)
        if not nullable:
            rejected = rejected | F.col(name).isNull()
        verdicts += [ours[name].holds().alias(f"{name}__ours"), (~rejected).alias(f"{name}__pandera")]
    found = frame.select("*", *verdicts).collect()
    differing = [
        (name, row[name], row[f"{name}__ours"], row[f"{name}__pandera"])
        for row in found
        for name in CASES
        if row[f"{name}__ours"] is not row[f"{name}__pandera"]
    ]
    assert not differing, f"seed {SEED}: (column, value, ours, pandera) {differing[:5]}"
    for name in CASES:  # a check that never fails, or never passes, would prove nothing
        outcomes = {row[f"{name}__ours"] for row in found}
        assert outcomes == {True, False}, f"seed {SEED}: {name} was always {outcomes}"


def _is_rule_of(rule_name: str, column: str) -> bool:
    endings = (
        "as_expected|not_forbidden|above_minimum|at_least_minimum|below_maximum|at_most_maximum|within_bounds|known|"
        "well_formed|containing|prefixed|suffixed|length_within_bounds"
    )
    return re.fullmatch(f"{column}_({endings})", rule_name) is not None


def test_real_validations_agree_with_the_compiled_rules(spark: SparkSession) -> None:
    """Without it, the comparison above could rest on a wrong idea of what `validate` reports, nulls above all."""
    contract = model(
        must=(T.LongType(), pa.Field(ge=3)),
        may=(T.LongType(), pa.Field(ge=3, nullable=True)),
        present=(T.LongType(), pa.Field()),
    )
    values = [(3, 3, 0), (3, None, 0), (2, 2, 0), (None, 3, None)]
    schema = T.StructType([T.StructField(n, T.LongType()) for n in ("must", "may", "present")])
    whole = spark.createDataFrame(values, schema).coalesce(1)
    rules = compile_rules(contract)
    ours = [
        {each.name for each in rules if not row[each.name]}
        for row in whole.select(*[each.holds().alias(each.name) for each in rules]).collect()
    ]
    theirs = []
    for value in values:
        checked: Any = contract.validate(spark.createDataFrame([value], schema).coalesce(1))  # type: ignore[arg-type]
        errors = [e["column"] for kind in checked.pandera.errors.values() for each in kind.values() for e in each]
        theirs.append(set(errors))
    assert [{name.split("_")[0] for name in names} for names in ours] == theirs
    assert theirs == [set(), set(), {"must", "may"}, {"must", "present"}]


def test_names_follow_from_column_and_kind_of_check() -> None:
    """Without it, a changed threshold could rename a check, and its history in Dagster would end."""

    def named(limit: int) -> list[str]:
        contract = model(
            rules={"adds_up": lambda: F.col("a") > 0},
            a=(T.LongType(), pa.Field(gt=limit)),
            b=(T.StringType(), pa.Field(nullable=True, isin=["x"] * limit)),
            c=(T.StringType(), pa.Field()),
            d=(T.StringType(), pa.Field(nullable=True)),
            e=(T.LongType(), pa.Field(ge=limit, le=2 * limit)),
        )
        return [each.name for each in compile_rules(contract)]

    assert named(1) == ["a_above_minimum", "b_known", "c_present", "e_at_least_minimum", "e_at_most_maximum", "adds_up"]
    assert named(7) == named(1)


def test_descriptions_say_the_limit_and_stay_short() -> None:
    """Without it, the table's page would show a name without its bound, or a list of hundreds of codes."""
    contract = model(
        a=(T.LongType(), pa.Field(in_range={"min_value": 1, "max_value": 9})),
        b=(T.StringType(), pa.Field(isin=[f"code{n}" for n in range(500)])),
    )
    first, second = compile_rules(contract)
    assert "min_value=1, max_value=9" in first.describes
    assert second.describes.startswith("b isin (allowed_values=code0, code1")
    assert len(second.describes) < 100


def test_a_rule_passes_only_where_it_is_true(spark: SparkSession) -> None:
    """Without it, a rule over a null would neither pass nor fail, and the row would have no route."""
    contract = model(
        rules={"never_known": lambda: F.lit(None).cast("boolean"), "small": lambda: F.col("a") < 5},
        a=(T.LongType(), pa.Field(nullable=True)),
    )
    frame = spark.createDataFrame([(1,), (None,), (9,)], "a long")
    found = frame.select(*[each.holds().alias(each.name) for each in compile_rules(contract)]).collect()
    assert [tuple(row) for row in found] == [(False, True), (False, False), (False, False)]


def test_late_rows_of_a_hundred_days_can_be_accepted(spark: SparkSession) -> None:
    """Without it, a backfill over days of which late rows were accepted would end with an error of the wire."""
    days = [date(2026, 1, 1) + timedelta(days=n) for n in range(100)]
    found = lateness_rule("day", 2, {day: day + timedelta(days=9) for day in days})
    rows = [(days[-1], days[-1] + timedelta(days=late)) for late in (1, 9, 10)]
    frame = spark.createDataFrame(rows, "day date, _arrival_date date")
    assert [row[0] for row in frame.select(found.holds()).collect()] == [True, True, False]


@pytest.mark.parametrize(("words", "got"), [(("a is above zero",), "'a is above zero'"), ((), "none")])
def test_a_rule_in_words_is_told_where_they_belong(words: tuple[Any, ...], got: str) -> None:
    """Without it, a table file was refused since a 'RuleMethod' object is not callable."""
    with pytest.raises(ContractError, match=f"^@rule: expected the method below it, got {got}. Write @rule alone"):
        rule(*words)


def test_a_method_that_gives_no_column_is_named(spark: SparkSession) -> None:
    """Without it, a run would end with words of the engine that name neither the table's model nor the rule."""
    assert spark is not None

    class Mistaken(pa.DataFrameModel):
        a: T.LongType() = pa.Field(nullable=True)

        @rule
        def both(cls) -> Column:
            return F.col("a") > 0 and F.col("a") < 9

        @rule
        def always(cls) -> Column:
            return True  # type: ignore[return-value]

        @rule
        def without() -> Column:
            return F.col("a") > 0

    for each, why in zip(compile_rules(Mistaken), ("'&' for 'and'", "got bool", "takes 0 positional"), strict=True):
        with pytest.raises(ContractError, match=rf"(?s)^Mistaken\.{each.name} gives no rule \(.*{why}"):
            each.holds()


def test_inherited_rules_apply_and_can_be_overridden() -> None:
    """Without it, the rule of a base contract (every bronze table's `line_well_formed`) could go missing."""

    class Base(pa.DataFrameModel):
        a: T.LongType = pa.Field(nullable=True)

        @rule
        def sound(cls) -> Column:
            """The base's words."""
            return F.col("a") > 0

        @rule
        def other(cls) -> Column:
            return F.col("a") < 9

    class Special(Base):
        @rule
        def sound(cls) -> Column:
            """Its own words."""
            return F.col("a") > 1

    assert [(each.name, each.describes) for each in compile_rules(Special)] == [
        ("sound", "Its own words"),
        ("other", "other"),
    ]


def test_two_rules_of_one_name_are_refused() -> None:
    """Without it, two rules would share one check, and one failure would be counted for both."""
    contract = model(rules={"amount_known": lambda: F.lit(True)}, amount=(T.LongType(), pa.Field(isin=[1])))
    with pytest.raises(ContractError, match="Made declares the rule.s. amount_known more than once; rename one"):
        compile_rules(contract)
    both = model(amount=(T.LongType(), pa.Field(ne=3, notin=[4])))
    with pytest.raises(ContractError, match="amount_not_forbidden more than once"):
        compile_rules(both)


def test_an_unknown_check_is_refused_by_name() -> None:
    """Without it, a check that has no column form would be dropped, and the contract would promise what nobody tests."""
    contract = model(a=(T.LongType(), pa.Field(unique_values_eq=[1, 2])))
    with pytest.raises(ContractError, match=r"Made\.a: the pandera check 'unique_values_eq' .*@rule method"):
        compile_rules(contract)


def test_checks_that_would_be_ignored_are_refused() -> None:
    """Without it, `@pa.dataframe_check`, `@pa.check` or `Config.unique` would look like a promise and test nothing."""

    class WholeFrame(pa.DataFrameModel):
        a: T.LongType = pa.Field()

        @pa.dataframe_check
        def any_rows(cls, frame: Any) -> bool:  # type: ignore[misc]
            return True

    class OneColumn(pa.DataFrameModel):
        a: T.LongType = pa.Field()

        @pa.check("a")
        def odd(cls, column: Any) -> bool:
            return True

    class Unique(pa.DataFrameModel):
        a: T.LongType = pa.Field()

        class Config:
            unique = ["a"]

    with pytest.raises(ContractError, match="WholeFrame .*any_rows.*@rule"):
        compile_rules(WholeFrame)
    with pytest.raises(ContractError, match=r"OneColumn\.a: the pandera check 'odd'"):
        compile_rules(OneColumn)
    with pytest.raises(ContractError, match="Unique .*unique.*key"):
        compile_rules(Unique)


def test_skipped_columns_keep_their_checks() -> None:
    """Without it, a partition column's declared check would silently not be tested."""
    contract = model(day=(T.DateType(), pa.Field(ge=date(2020, 1, 1))), land=(T.StringType(), pa.Field()))
    assert [each.name for each in compile_rules(contract, skip=frozenset({"day", "land"}))] == ["day_at_least_minimum"]
