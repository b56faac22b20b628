"""The one pass over a table's rows: repeats are counted, rules judged and rows routed in the write itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import and_, or_
from pathlib import Path
from weakref import WeakKeyDictionary

from google.protobuf.message import DecodeError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F

from lakehouse.contracts import Rule, Table
from lakehouse.contracts.fitting import surplus
from lakehouse.delta.staged import (
    CONTENT,
    COPIES,
    FAILED_RULES,
    IN_TWO_STEPS,
    QUARANTINED,
    REPEATED,
    ROUTE,
    VALID,
    name_routes,
)
from lakehouse.errors import ContractError, SchemaMismatchError
from lakehouse.pairs import in_pairs
from lakehouse.read.content import content_of_row
from lakehouse.read.lake import quoted
from lakehouse.read.targets import provenance, quarantine_schema
from lakehouse.store.disk import keep_group

_MOST_TOLD = 10  # columns that are not as the contract has them
BEATEN = "_beaten"  # on a mark: another day's row comes before all rows of its key on its day; then on the row left

# By its first page a column keeps its dictionary, or is written anew without it. Of the usual 20,000 rows a page,
# that is a third of a day of 60,000 rows, twice; and how the sizes of values are spread is asked by nobody. Without
# both, a write takes nine tenths of the time, and files of large days are a thirtieth larger.
_QUICK = {"parquet.page.row.count.limit": "5000", "parquet.size.statistics.enabled": "false"}
# By transform, the columns of frames made in one way: what these are depends on nothing but code.
_known: WeakKeyDictionary[Callable[..., DataFrame], dict[tuple[tuple[str, ...], str], Collection[str]]] = (
    WeakKeyDictionary()
)


def routed(
    table: Table, frame: DataFrame, rules: Sequence[Rule] | None = None, made_as: str | None = None
) -> DataFrame:
    """The transform's rows with the outcome of every rule and the route each row takes.

    Duplicates are dropped first, then the rules apply, so a row has one route.

    Args:
        table: the contract.
        frame: the transform's rows.
        rules: the row rules of this build; None: the contract's.
        made_as: a name for the way in which the frame was made, if all that are made so have the same columns: what
            these are is asked once for the process. Spark Connect analyses the whole plan to tell.

    Raises:
        SchemaMismatchError: where the transform's columns are not the contract's.
    """
    columns = _columns(table, frame, made_as)
    frame = _conformed(frame, columns)
    marked = BEATEN in columns
    if table.key:
        frame = _first_of_each_key(table, frame, marked)
    rules = table.rules if rules is None else rules
    if rules:
        # One boolean for all rules decides the route; names are put together only for rows that fail. All of it
        # compiles to Java, which higher-order array functions would not; and each rule to a method of its own, since it
        # stands here more than once. With the boolean as a column, fifty rules would be one method, too long for Java.
        held = {rule.name: rule.holds() for rule in rules}
        sound = in_pairs(and_, held.values())
        names = F.concat_ws(",", *[F.when(~holds, F.lit(name)) for name, holds in held.items()])
        failed = F.when(~sound, F.split(names, ","))
        route = F.when(sound, F.lit(VALID)).otherwise(F.lit(QUARANTINED))
    else:
        failed, route = F.lit(None).cast("array<string>"), F.lit(VALID)
    if marked:
        route = F.when(F.col(BEATEN), F.lit(REPEATED)).otherwise(route)
    frame = frame.withColumns({FAILED_RULES: failed, ROUTE: route})
    own = set(table.columns)
    # What only quarantined rows say; each such column of nulls costs a fiftieth of the write of narrow rows.
    extras = [quoted(f.name) for f in quarantine_schema(table).fields if f.name not in own] if rules else []
    return frame.selectExpr(
        *map(quoted, table.columns),
        *[f"CASE WHEN {ROUTE} = '{QUARANTINED}' THEN {name} END AS {name}" for name in extras],
        *([COPIES] if table.key else []),
        f"CASE WHEN {ROUTE} = '{VALID}' THEN {content_of_row(table)} END AS {CONTENT}",
        ROUTE,
    )


def _first_of_each_key(table: Table, frame: DataFrame, marked: bool) -> DataFrame:
    """The row to keep of each key and day, with how many rows of the key there were in `_copies`.

    Counted backwards: the row that comes first by `keep_first_by` is numbered last, so its number is the count. Repeats
    are thereby counted in the pass that drops them, by rows that are written anyway. Where another day's row comes
    before all of them, which a mark says (`lakehouse.build.unique`), the row left is `_beaten`: it only counts.
    """
    # One shuffle serves the keys and the layout: rows of a day meet in `files_per_day` tasks, chosen by key.
    layout = [F.col(c) for c in table.partition_by]
    if table.layout.files_per_day > 1:
        layout.append(F.pmod(F.xxhash64(*table.key), F.lit(table.layout.files_per_day)))
    backwards = [F.col(c).desc_nulls_first() for c in table.keep_first_by] or [F.lit(1)]
    marks = F.lit(0)
    if marked:
        backwards.insert(0, F.col(BEATEN).desc())  # the marks of a key come before its rows, which then all see them
    window = Window.partitionBy(*layout, *(F.col(k) for k in table.key)).orderBy(*backwards)
    if marked:
        marks = F.sum(F.col(BEATEN).cast("int")).over(window).cast("int")
    # Rows without a key are no repeats of each other; each meets the rules on its own.
    keyless = in_pairs(or_, [F.col(c).isNull() for c in needed(table)], F.lit(False))
    numbered = frame.repartition(*layout).withColumns(
        {
            # Numbered from the end of the order, so that the row that is kept has the highest number, which is the
            # count.
            COPIES: F.when(keyless, F.lit(1)).otherwise(F.row_number().over(window) - marks),
            "_first": keyless | F.lead(F.lit(1)).over(window).isNull(),
            **({"_marks": marks} if marked else {}),
        }
    )
    if not marked:
        return numbered.where("_first")
    kept = numbered.where(F.col("_first") & ~F.col(BEATEN))
    return kept.withColumn(BEATEN, ~keyless & (F.col("_marks") > 0)).drop("_marks")


def needed(table: Table) -> list[str]:
    """The key columns without which a row has no key, and so repeats nothing."""
    return [c for c in table.key if c in table.required or len(table.key) == 1]


def write_routed(
    table: Table,
    frame: DataFrame,
    folder: Path,
    rules: Sequence[Rule] | None = None,
    counted: bool = True,
    made_as: str | None = None,
) -> int | None:
    """Write the routed rows once, partitioned by route and by the table's partition columns.

    Returns how many rows the writing tasks were given, each task counted once however often it was tried. Executors on
    other machines may write elsewhere than where this process reads, and some die: `read_staged` compares. None where
    they were not counted.

    Args:
        table: the contract.
        frame: the transform's rows.
        folder: where to; what is there already is replaced.
        rules: the row rules of this build; None: the contract's.
        counted: count them, which takes a tenth of the time of narrow rows. An engine of one process, on this machine,
            writes where it is told, or fails.
        made_as: see `routed`.

    Raises:
        SchemaMismatchError: where the transform's columns are not the contract's.
        ContractError: for a rule that is no boolean column, or reads a column that is not there; a column is nested
            too deep.
    """
    given = Observation()
    try:
        # One pass for all routes: rules, repeats and layout are decided row by row on the way to the files.
        rows = routed(table, frame, rules, made_as)
        rows = observed(rows, given, F.count(F.lit(1)).alias("rows")) if counted else rows
        writer = rows.write.mode("overwrite").options(**IN_TWO_STEPS, **_QUICK, **_plain(table))
        writer.partitionBy(ROUTE, *table.partition_by).parquet(str(folder))
    except AnalysisException:
        _refuse_broken_rules(table, frame, table.rules if rules is None else rules)
        raise
    except DecodeError as error:
        raise ContractError(
            f"The transform of {table.id}, or a rule, nests a column deeper than Spark Connect sends, which is about "
            "fifty: so does a sum or a condition that a loop makes of many columns. Put them together as a tree: "
            "`in_pairs(add, columns)`, with `from lakehouse.pairs import in_pairs` and `from operator import add`. "
            "Nothing was published."
        ) from error
    name_routes(folder)
    keep_group(folder)
    return int(given.get["rows"]) if counted else None


def _plain(table: Table) -> dict[str, str]:
    """Options for columns whose values are all different: a dictionary of the first 20,000 of a file is thrown away."""
    key = table.key if len(table.key) == 1 else ()
    return {f"parquet.enable.dictionary#{column}": "false" for column in (CONTENT, "_source_row", *key)}


def _refuse_broken_rules(table: Table, frame: DataFrame, rules: Sequence[Rule]) -> None:
    """Name the first rule that cannot be judged; asked once the engine has refused the whole, which names none."""
    rows = _conformed(frame, frame.columns)
    for each in rules:
        try:
            rows.select(each.holds()).schema  # noqa: B018  # this is what asks the engine
        except AnalysisException as error:
            why = str(error).split(" SQLSTATE:")[0].splitlines()[0].rstrip(";.")
            raise ContractError(
                f"The rule {each.name} of {table.id} cannot be judged: {why}. A rule is a boolean column of the "
                "transform's columns; correct it in the table's file. Nothing was published."
            ) from error


def observed(frame: DataFrame, told: Observation, figure: Column) -> DataFrame:
    """The rows of no stream, with a figure of them that is told once they are written."""
    vars(frame)["isStreaming"] = False  # else Spark Connect has the whole plan analysed to find out
    return frame.observe(told, figure)


def _columns(table: Table, frame: DataFrame, made_as: str | None) -> Collection[str]:
    """The frame's columns, among them the contract's.

    Types must match exactly; a silent cast would turn bad values into nulls.
    """
    known = _known.setdefault(table.transform, {})
    if made_as and (found := known.get((table.key, made_as))):
        return found
    actual = {f.name: f.dataType.simpleString() for f in frame.schema.fields}
    if absent := [name for name in table.beside if name not in actual]:
        raise SchemaMismatchError(
            f"The transform of {table.id} does not give {', '.join(absent)}, by which its rows come first, or are in "
            "time (keep_first_by, clock, allowed_lateness). Give what the input has, or take it out of the policy."
        )
    wanted = {f.name: f.dataType.simpleString() for f in table.schema.fields}
    differing = [name for name, kind in wanted.items() if actual.get(name) != kind]
    wrong = [f"{name}: expected {wanted[name]}, got {actual.get(name, 'no such column')}" for name in differing]
    unknown = surplus(table, actual)
    if wrong or unknown:
        more = [f"and {len(wrong) - _MOST_TOLD} more"] if len(wrong) > _MOST_TOLD else []
        also = [f"not in the contract: {', '.join(unknown)}"] if unknown else []
        raise SchemaMismatchError(
            f"The transform of {table.id} does not give the columns of {table.model.__name__}: "
            f"{'; '.join(wrong[:_MOST_TOLD] + more + also)}. Change the transform or the contract so that they agree."
        )
    if made_as:
        known[table.key, made_as] = actual
    return actual


def _conformed(frame: DataFrame, columns: Collection[str]) -> DataFrame:
    """The frame with missing provenance columns added."""
    missing = [f for f in provenance().fields if f.name not in columns]
    return frame.withColumns({f.name: F.lit(None).cast(f.dataType) for f in missing}) if missing else frame
