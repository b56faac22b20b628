"""The assets that follow from the contracts, checked without an engine."""

import re
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from dagster import (
    AssetCheckSeverity,
    AssetsDefinition,
    BackfillPolicy,
    Failure,
    TimeWindowPartitionMapping,
    reconstructable,
)
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from pyspark.errors import PySparkException

from lakehouse.build.result import PUBLISHED, UNCHANGED, BuildResult, DayResult
from lakehouse.build.verdicts import JUDGED_AFTER, Verdict, table_verdicts
from lakehouse.catalog import tables
from lakehouse.checks.audit import audit_day, blocking_checks, check_names
from lakehouse.checks.metrics import DayMetrics
from lakehouse.checks.producers import ProducerDay, judge_clocks
from lakehouse.contracts import Table
from lakehouse.contracts.clock import CLOCKS_CHECK
from lakehouse.definitions import defs
from lakehouse.orchestration.assets import _retried, build_asset, without_values
from lakehouse.orchestration.checks import check_specs, evaluations
from lakehouse.orchestration.declared import code_reference, column_lineage, column_schema, report_link
from lakehouse.orchestration.instance import DAGSTER_BACKFILL_TAG, opened_instance
from lakehouse.orchestration.metadata import (
    LONGEST_KEY,
    asset_key,
    clock_metadata,
    day_metadata,
    quarantine_metadata,
)
from lakehouse.orchestration.quarantine import observed
from lakehouse.read.lake import PinnedLake
from lakehouse.records.depth import DEPTH_CHECK, Depth
from lakehouse.runs.executing import lake_job
from lakehouse.settings import Settings, get_settings
from lakehouse_tests.build.test_days_after import around
from lakehouse_tests.fixtures.packages import SHOP, tables_of

DAY = date(2011, 1, 5)


@pytest.fixture(scope="module")
def graph() -> AssetGraph:
    """The asset graph that Dagster resolves."""
    return defs.resolve_asset_graph()


def _assets(table: Table) -> AssetsDefinition:
    return defs.resolve_assets_def(asset_key(table.id))


@pytest.mark.parametrize("table", tables().values(), ids=lambda table: table.id)
def test_everything_follows_from_the_contract(table: Table) -> None:
    """Whatever the UI shows or the daemon decides by comes from the table's file."""
    made, key = _assets(table), asset_key(table.id)
    spec = made.specs_by_key[key]
    assert (spec.group_name, list(spec.owners), spec.code_version) == (table.layer, [table.owner], table.code_version)
    assert {"pyspark", "deltalake", table.layer} <= spec.kinds
    assert spec.description == table.description
    assert spec.freshness_policy is not None
    assert made.partitions_def is not None

    assert made.backfill_policy == BackfillPolicy.single_run()
    assert made.op.pool == (f"{table.layer}_{table.name}" if table.upsert or table.taken else None)
    assert made.op.retry_policy is None  # it would retry mistakes and interrupts too; see retries.py
    fresh = {"inputs_fresh"} if table.upstream else set()
    assert {check.name for check in made.check_specs} == set(check_names(table)) | fresh


@pytest.mark.parametrize("table", tables().values(), ids=lambda table: table.id)
def test_check_specs_and_outcomes_cannot_drift(table: Table) -> None:
    """A check that Dagster lists but the audit never reports would look passed for ever."""
    outcomes = audit_day(table, DayMetrics(DAY), {})
    depth = Depth(datetime(2011, 1, 6, tzinfo=UTC))
    result = BuildResult(table, 1, {}, {DAY: DayResult(PUBLISHED, DayMetrics(DAY), outcomes)}, quarantine=depth)
    assert {outcome.check for outcome in outcomes} == set(check_names(table)) - set(JUDGED_AFTER)
    assert blocking_checks(table) <= {outcome.check for outcome in outcomes}
    assert {each.check_name for each in evaluations(table, [], result)} == set(check_names(table))


@pytest.mark.parametrize("table", tables().values(), ids=lambda table: table.id)
def test_a_check_that_keeps_days_back_says_so(table: Table) -> None:
    """Without it, Dagster would call the checks that keep a day from being published non-blocking."""
    blocking = {spec.name for spec in _assets(table).check_specs if spec.blocking}
    assert blocking == blocking_checks(table)
    assert {"row_count", "null_rates", "row_rules"} <= blocking
    for spec in _assets(table).check_specs:
        assert ("is not published" in (spec.description or "")) == (spec.name in blocking), spec.name


def test_a_full_quarantine_warns_and_is_shown_on_the_asset(tmp_path: Path) -> None:
    """A depth beyond the bound that failed as an error would make a good day look as if it was not published."""
    table = tables()["silver.transactions"]
    now = datetime(2011, 3, 6, tzinfo=UTC)
    depth = Depth(now, 7, 2, Counter({"currency_known": 7}), now - timedelta(days=40))
    result = BuildResult(table, 1, {}, {DAY: DayResult(UNCHANGED, DayMetrics(DAY))}, quarantine=depth)
    lake = PinnedLake(Settings(root=tmp_path), tables())
    failed = table_verdicts(lake, table, depth=result.quarantine)
    (found,) = [each for each in evaluations(table, failed, result) if each.check_name == DEPTH_CHECK]
    assert (found.passed, found.severity) == (False, AssetCheckSeverity.WARN)
    assert "7 rows in quarantine" in str(found.description)
    assert "currency_known 7" in str(found.description)
    assert quarantine_metadata(result) == {
        "quarantine_rows": 7,
        "quarantine_age_days": 40.0,
        "quarantine_discarded": 2,
    }


def test_a_producer_with_a_wrong_clock_is_named_and_plotted() -> None:
    """As an error it would make good rows look unpublished; unnamed, nobody would know whose clock to set."""
    table = tables()["silver.transactions"]
    producers = [
        ProducerDay(DAY, "events/app", {"rows": 900, "ahead": 40, "ahead_p50": 600, "ahead_most": 1200, "number": 9}),
        ProducerDay(DAY, "events/web", {"rows": 900}),
        ProducerDay(DAY + timedelta(days=1), "events/app", {"rows": 900}),
    ]
    result = BuildResult(table, 1, {}, {DAY: DayResult(PUBLISHED, DayMetrics(DAY))}, producers=producers)
    assert table.clock is not None
    passed, text = judge_clocks(table.clock, result.producers)
    failed = [Verdict(CLOCKS_CHECK, None, blocking=False, found=text)]
    (found,) = [each for each in evaluations(table, failed, result) if each.check_name == CLOCKS_CHECK]
    assert (passed, found.passed, found.severity) == (False, False, AssetCheckSeverity.WARN)
    assert str(found.description).startswith("the clock of events/app is wrong on 1 day(s), last 2011-01-05: 40 of 900")
    assert found.metadata["rows_ahead"].value == 40
    assert "events/web" not in str(found.description)
    assert clock_metadata(result, DAY) == {
        "clock/events/app/rows_ahead": 40,
        "clock/events/app/minutes_ahead": 10.0,
        "clock/events/app/rows_impossible": 9,
    }
    assert day_metadata(table, result, DAY, "uri", 0).items() >= clock_metadata(result, DAY).items()


@pytest.mark.parametrize(("ahead", "minutes", "text"), [(40, 10.0, None), (1, 1440, "7973 years; plotted as a day")])
def test_one_impossible_year_flattens_no_plot(ahead: int, minutes: float, text: str | None) -> None:
    """Without it, one row of the year 9999 would make a flat line of every other day, for the UI cuts no axis."""
    far = {"far_ahead": 2, "far_ahead_p50": 7973 * 365 * 86_400}
    producer = ProducerDay(DAY, "events", {"rows": 900, "ahead": ahead, "ahead_p50": 600, **far})
    result = BuildResult(tables()["silver.transactions"], 1, {}, {}, producers=[producer])
    found = clock_metadata(result, DAY)
    assert (found["clock/events/minutes_ahead"], found.get("clock/events/ahead")) == (minutes, text)
    assert found["clock/events/rows_ahead"] == ahead + 2


def test_the_graph_is_that_of_the_inputs(graph: AssetGraph) -> None:
    """Lineage in the UI is read from these edges."""
    for table in tables().values():
        parents = {each.table for each in table.upstream.values()}
        assert {".".join(key.path) for key in graph.get(asset_key(table.id)).parent_keys} == parents


def test_a_window_input_depends_on_its_days() -> None:
    """Features of a day wait for the six days before it, not only for their own."""
    (dep,) = _assets(tables()["gold.user_features"]).specs_by_key[asset_key("gold.user_features")].deps
    assert isinstance(dep.partition_mapping, TimeWindowPartitionMapping)
    assert (dep.partition_mapping.start_offset, dep.partition_mapping.end_offset) == (-6, 0)


def test_an_input_with_days_after_depends_on_these_too() -> None:
    """Else Dagster's backfill would build a day before the day after it, and every day twice."""
    made = around("silver.transactions")
    (dep,) = build_asset(made).specs_by_key[asset_key(made.id)].deps
    assert isinstance(dep.partition_mapping, TimeWindowPartitionMapping)
    assert (dep.partition_mapping.start_offset, dep.partition_mapping.end_offset) == (-1, 1)
    assert dep.partition_mapping.allow_nonexistent_upstream_partitions, "the day after the newest is not there yet"


@pytest.mark.parametrize("table", tables().values(), ids=lambda table: table.id)
def test_declared_lineage_names_real_columns(table: Table) -> None:
    """A renamed input column must not leave a dead end in the lineage."""
    upstream = {each.table: tables()[each.table] for each in table.upstream.values()}
    lineage = column_lineage(table, upstream).deps_by_column
    for deps in lineage.values():
        for dep in deps:
            assert dep.column_name in upstream[".".join(dep.asset_key.path)].columns
    if table.layer == "gold":
        assert set(lineage) == set(table.columns)


def test_personal_data_is_marked_in_the_schema() -> None:
    """People who browse the catalog see which columns they may not copy out."""
    columns = {c.name: c for c in column_schema(tables()["silver.transactions"], tables()).columns}
    assert "pii" in columns["email_token"].tags
    assert "pii" not in columns["amount"].tags
    assert not columns["event_id"].constraints.nullable


def test_a_column_says_where_it_comes_from() -> None:
    """What Dagster draws as a graph is read in the description too; of a hash over eight columns the first are named."""
    columns = {c.name: c.description or "" for c in column_schema(tables()["gold.daily_revenue"], tables()).columns}
    assert columns["net_revenue"] == "Gross plus cancelled. From silver.transactions.amount"
    wide = {c.name: c.description or "" for c in column_schema(tables()["silver.transactions"], tables()).columns}
    assert wide["event_id"].endswith("bronze.online_retail.Description and 5 more")


def test_links_are_only_where_they_lead_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report where one is served, the file on the machine that `dagster dev` runs on: a path tells of a machine."""
    table = tables()["gold.daily_revenue"]
    monkeypatch.delenv("DAGSTER_IS_DEV_CLI", raising=False)
    assert report_link(table) == code_reference(table) == {}
    monkeypatch.setenv("DAGSTER_IS_DEV_CLI", "1")
    (named,) = code_reference(table)["dagster/code_references"].code_references
    assert named.file_path.endswith("fixtures/shop/gold/daily_revenue.py")
    monkeypatch.setenv("LAKEHOUSE_REPORT_URL", "http://127.0.0.1:3001/")
    get_settings.cache_clear()
    assert report_link(table)["report"].value == "http://127.0.0.1:3001/#gold.daily_revenue"
    get_settings.cache_clear()


def test_one_run_serves_a_range_of_all_tables() -> None:
    """All tables share one partitioning, so that a backfill is one run and one Spark session."""
    partitions = {_assets(table).partitions_def for table in tables().values()}
    assert len(partitions) == 1
    job = defs.resolve_job_def("lakehouse")
    assert {".".join(key.path) for key in job.asset_layer.selected_asset_keys} == set(tables())


@pytest.mark.parametrize(("days", "policy"), [(0, BackfillPolicy.single_run()), (5, BackfillPolicy.multi_run(5))])
def test_a_long_backfill_can_be_many_runs(monkeypatch: pytest.MonkeyPatch, days: int, policy: BackfillPolicy) -> None:
    """Without it, a backfill of years would be one run that can neither be paused nor be on several engines at once."""
    monkeypatch.setenv("LAKEHOUSE_BACKFILL_DAYS", str(days))
    get_settings.cache_clear()
    try:
        made = build_asset(tables()["gold.user_features"])
    finally:
        monkeypatch.undo()
        get_settings.cache_clear()
    assert made.backfill_policy == policy


def test_live_runs_always_have_a_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a backfill of many runs would fill the queue's slots, and yesterday would wait for it."""
    for name in ("DAGSTER_HOME", "DAGSTER_EVENT_BATCH_SIZE"):  # set on the way; taken back at the end
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    with opened_instance(Settings(root=tmp_path / "root")) as instance:
        queue = instance.get_concurrency_config().run_queue_config
    assert queue is not None
    (limit,) = [each["limit"] for each in queue.tag_concurrency_limits if each["key"] == DAGSTER_BACKFILL_TAG]
    assert 1 < limit < queue.max_concurrent_runs


def test_an_engine_error_tells_no_value_of_a_row() -> None:
    """Without it, the value that could not be cast, an address for example, would be stored with Dagster's events."""
    text = (
        '[CAST_INVALID_INPUT] The value \'ann@example.com\' of the type "STRING" cannot be cast to "BIGINT" of bo@x.org.'
        '\n== DataFrame ==\n"cast" was called from ann'
    )
    context = SimpleNamespace(retry_number=0)
    with pytest.raises(Failure) as caught, _retried(context):  # type: ignore[arg-type]
        raise PySparkException(text)
    told = caught.value.description or ""  # the first line of the run's page
    assert "CAST_INVALID_INPUT" in told
    assert '"STRING" cannot be cast to "BIGINT"' in told
    assert not {"ann", "bo@x.org"} & set(re.split(r"[^\w.@]", told))
    assert "example.com" not in told
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_an_engine_error_is_told_without_its_plan() -> None:
    """Without it, a mistyped column ended in twenty lines of a plan that nobody had written like that."""
    text = (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `amuont` cannot be resolved. Did you mean `amount`? "
        "SQLSTATE: 42703;\n'Aggregate [sum('amuont) AS total#1363]\n+- Union false, false"
    )
    told = without_values(PySparkException(text))
    assert told == f"PySparkException: {text.partition(';')[0]}"


@pytest.mark.parametrize("table", tables().values(), ids=lambda table: table.id)
def test_one_day_and_many_are_told_under_the_same_short_names(table: Table) -> None:
    """Without it, a plot would have a line for single days and another for backfills, or a name cover its value."""
    days, broken = [DAY, DAY + timedelta(days=1)], {rule.name: 1 for rule in table.rules}
    made = {
        day: DayResult(PUBLISHED, metrics, audit_day(table, metrics, {}))
        for day in days
        for metrics in [DayMetrics(day, rows=3, nulls=dict.fromkeys(table.columns, 1), failures=broken)]
    }
    one = BuildResult(table, 1, {each.table: 7 for each in table.upstream.values()}, {DAY: made[DAY]})
    many = BuildResult(table, 1, one.inputs, made)
    for single, several in zip(evaluations(table, [], one), evaluations(table, [], many), strict=True):
        assert set(single.metadata) == set(several.metadata), single.check_name
        assert all(len(key) <= LONGEST_KEY for key in single.metadata)
    shown = day_metadata(table, one, DAY, "uri", 3)
    assert set(shown) == set(day_metadata(table, many, DAY, "uri", 3))
    assert all(len(key) <= LONGEST_KEY for key in shown)
    assert len([key for key in shown if key.startswith("failed/")]) == len(table.rules)
    aside = observed(table, Depth(datetime(2011, 3, 6, tzinfo=UTC)))
    assert all(len(key) <= LONGEST_KEY for key in aside.metadata)


def test_a_day_without_a_file_says_so_and_links_to_none() -> None:
    """Without it, the page of an empty day would lead to a file that is not there, and say that all is well."""
    table = tables()["bronze.online_retail"]
    result = BuildResult(
        table, 1, {}, {DAY: DayResult(PUBLISHED, DayMetrics(DAY), audit_day(table, DayMetrics(DAY), {}))}
    )
    shown = day_metadata(table, result, DAY, "uri", 0, {})
    assert "reads/landing" not in shown
    assert (shown["landed_files"], shown["checks"][:18]) == (0, "no file has landed")
    there = day_metadata(table, result, DAY, "uri", 0, {DAY: [Path(f"landing/online_retail/{DAY}.csv.gz")]})
    assert there["reads/landing"].value == f"landing/online_retail/{DAY}.csv.gz"


def test_a_check_that_only_warns_is_not_called_failed() -> None:
    """Without it, the page of a day that was published would say that a check of it failed."""
    table = tables()["bronze.events"]
    drifted = DayMetrics(DAY, rows=300, rows_in=300, unknown_fields={"device": 1})
    outcomes = audit_day(table, drifted, {})
    result = BuildResult(table, 1, {}, {DAY: DayResult(PUBLISHED, drifted, outcomes)})
    shown = day_metadata(table, result, DAY, "uri", 3)["checks"]
    assert shown.endswith("; warned: schema_drift")
    assert "; failed: " not in shown


def test_an_input_that_is_not_there_yet_has_no_version() -> None:
    """Without it, the page of a table that a stream feeds would say that it read version -1 of the files' tables."""
    table = tables()["silver.transactions"]
    result = BuildResult(
        table, 1, {"bronze.events": -1, "bronze.event_stream": 0}, {DAY: DayResult(PUBLISHED, DayMetrics(DAY))}
    )
    shown = day_metadata(table, result, DAY, "uri", 3)["read_versions"]
    assert shown == "bronze.events none yet, bronze.event_stream 0"


def test_a_check_says_once_that_it_only_warns() -> None:
    """Without it, its page would say the same thing twice in a row."""
    for table in tables().values():
        for spec in check_specs(table):
            assert (spec.description or "").lower().count("warns") <= 1, spec.description


def test_everything_that_starts_runs_says_what_it_does() -> None:
    """Without it, the list of automations would show a bare name, or the marks of Markdown, which it does not read."""
    repository = defs.get_repository_def()
    told = {each.name: each.description for each in repository.schedule_defs}
    told |= {each.name: each.description for each in repository.sensor_defs}
    for name, text in told.items():
        assert text, name
        assert "`" not in text
    assert all(job.description for job in repository.get_all_jobs() if not job.name.startswith("__"))


def test_no_window_greets_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the first thing that a visitor sees would be a request for an e-mail address."""
    for name in ("DAGSTER_HOME", "DAGSTER_EVENT_BATCH_SIZE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    with opened_instance(Settings(root=tmp_path / "root")) as instance:
        assert not instance.nux_enabled


def test_a_run_is_of_the_package_whose_tables_are_asked_for() -> None:
    """Without it, a test of one package could build the other's tables of the same names: Dagster keeps the last job."""
    job, table = reconstructable(lake_job), "silver.transactions"
    found = []
    for package in ("lakehouse", SHOP, "lakehouse"):
        with tables_of(package):
            spec = job.get_definition().asset_layer.asset_graph.get(asset_key(table))
            assert spec.code_version == tables()[table].code_version
            found.append(spec.code_version)
    assert found[0] == found[2] != found[1]
