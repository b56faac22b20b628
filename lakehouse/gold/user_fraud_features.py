"""gold.user_fraud_features: how a user behaved in the last hour, day and week before the end of a day."""

from __future__ import annotations

from datetime import timedelta

import pandera.pyspark as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.contracts import Count, Features, Input, Layout, Privacy, SliceBy, table

WINDOW_DAYS = 7
SPANS = {"1h": timedelta(hours=1), "24h": timedelta(hours=24)}  # they end at the last event, not with the day
NIGHT_ENDS = 6  # o'clock, UTC; it begins at midnight
ADDED = ("purchases", "amount", "squares")
SETS = {"methods": "payment_methods", "countries": "countries"}
MONEY = "decimal(18,2)"

_COUNT = "Purchase events in the {}"
_SUM = "Sum of purchases in the {}, whatever their currency"
_MEAN = "Mean of purchases in the {}, rounded half up; null without one"
_STDDEV = "Standard deviation of purchases in the {}, of the population: 0 of one purchase, null without one"
_METHODS = "Distinct payment methods of all events in the {}; null is none"
_COUNTRIES = "Distinct countries of all events in the {}; null is none"
_HOUR, _DAY, _WEEK = "hour up to the last event", "24 hours up to the last event", "seven days"


class UserFraudFeatures(pa.DataFrameModel):
    """Features of known users with an event, purchase or cancellation, in the seven days that end with `feature_date`.

    Point in time: nothing that happened after `feature_date` is in a row. The hour and the 24 hours end with the last
    event and hold the events strictly younger than that before it, so the 24 hours may begin on the day before the
    seven.
    """

    user_id: T.StringType() = pa.Field(description="Customer")
    feature_date: T.DateType() = pa.Field(description="Last day of the window, UTC")
    last_event_time: T.TimestampType() = pa.Field(description="Latest event in the seven days, UTC")
    purchases_1h: T.LongType() = pa.Field(ge=0, description=_COUNT.format(_HOUR))
    amount_1h: T.DecimalType(18, 2) = pa.Field(ge=0, description=_SUM.format(_HOUR))
    amount_mean_1h: T.DecimalType(18, 2) = pa.Field(nullable=True, ge=0, description=_MEAN.format(_HOUR))
    amount_stddev_1h: T.DoubleType() = pa.Field(nullable=True, ge=0, description=_STDDEV.format(_HOUR))
    payment_methods_1h: T.LongType() = pa.Field(ge=0, description=_METHODS.format(_HOUR))
    countries_1h: T.LongType() = pa.Field(ge=0, description=_COUNTRIES.format(_HOUR))
    purchases_24h: T.LongType() = pa.Field(ge=0, description=_COUNT.format(_DAY))
    amount_24h: T.DecimalType(18, 2) = pa.Field(ge=0, description=_SUM.format(_DAY))
    amount_mean_24h: T.DecimalType(18, 2) = pa.Field(nullable=True, ge=0, description=_MEAN.format(_DAY))
    amount_stddev_24h: T.DoubleType() = pa.Field(nullable=True, ge=0, description=_STDDEV.format(_DAY))
    payment_methods_24h: T.LongType() = pa.Field(ge=0, description=_METHODS.format(_DAY))
    countries_24h: T.LongType() = pa.Field(ge=0, description=_COUNTRIES.format(_DAY))
    purchases_7d: T.LongType() = pa.Field(ge=0, description=_COUNT.format(_WEEK))
    amount_7d: T.DecimalType(18, 2) = pa.Field(ge=0, description=_SUM.format(_WEEK))
    amount_mean_7d: T.DecimalType(18, 2) = pa.Field(nullable=True, ge=0, description=_MEAN.format(_WEEK))
    amount_stddev_7d: T.DoubleType() = pa.Field(nullable=True, ge=0, description=_STDDEV.format(_WEEK))
    payment_methods_7d: T.LongType() = pa.Field(ge=0, description=_METHODS.format(_WEEK))
    countries_7d: T.LongType() = pa.Field(ge=0, description=_COUNTRIES.format(_WEEK))
    night_share_7d: T.DoubleType() = pa.Field(
        in_range={"min_value": 0, "max_value": 1}, description="Share of the events from 00:00 to 05:59 UTC"
    )
    seconds_between_last_two: T.LongType() = pa.Field(
        nullable=True, ge=0, description="Whole seconds between the last two events in the seven days; null of one"
    )


@table(
    model=UserFraudFeatures,
    # One day more than the seven: the 24 hours up to an event of the first of them.
    inputs={"transactions": Input("silver.transactions", days_before=WINDOW_DAYS)},
    partition_by="feature_date",
    key=("user_id", "feature_date"),
    layout=Layout(slice_by=SliceBy(("user_id",))),
    owner="team:ml",
    grain="user × day",
    figures={"users": Count()},
    features=Features(entity="user", key=("user_id",), ttl=timedelta(days=7), while_open=True),
    privacy=Privacy(person=("user_id",)),
)
def user_fraud_features(transactions: DataFrame) -> DataFrame:
    """Puts each day's events together, with those of the 24 hours before its last, then spreads days over seven."""
    return _features(_days(transactions))


def _days(transactions: DataFrame) -> DataFrame:
    """One row a user and day with events: what is in the day, and in the spans that end with its last event."""
    of_day = Window.partitionBy("user_id", "_day")
    own = F.col("_date") == F.col("_day")
    events = (
        transactions.where(F.col("user_id").isNotNull())
        .select("user_id", "event_time", "event_type", "amount", "payment_method", "country")
        .repartition("user_id")  # the one shuffle: it serves all that follows
        .withColumn("_date", F.to_date("event_time"))
        # An event counts in its own day, and in the spans that end on the next.
        .withColumn("_day", F.explode(F.array("_date", F.date_add("_date", 1))))
        .withColumn("_last", F.max(F.when(own, F.col("event_time"))).over(of_day))
        .where(F.col("_last").isNotNull())
    )
    spans = {f"_{name}": F.col("event_time") > F.col("_last") - F.lit(length) for name, length in SPANS.items()}
    return events.groupBy("user_id", "_day").agg(
        F.max("_last").alias("_last"),
        _latest_two(F.collect_list(F.when(own, F.col("event_time")))).alias("_latest"),
        F.count_if(own).alias("_events"),
        F.count_if(own & (F.hour("event_time") < NIGHT_ENDS)).alias("_at_night"),
        *[_collected(within).alias(name) for name, within in {**spans, "_own": own}.items()],
    )


def _features(days: DataFrame) -> DataFrame:
    """One row a user and day of the seven that a day with events is read by."""
    spread = F.sequence("_day", F.date_add("_day", WINDOW_DAYS - 1))
    spans = [f"_{name}" for name in SPANS]
    week = [F.sum(f"_own.{name}").alias(name) for name in ADDED]
    week += [F.flatten(F.collect_list(f"_own.{name}")).alias(name) for name in SETS]
    made = (
        days.withColumn("feature_date", F.explode(spread))
        .groupBy("user_id", "feature_date")
        .agg(
            F.max("_last").alias("last_event_time"),
            _latest_two(F.flatten(F.collect_list("_latest"))).alias("_latest"),
            F.sum("_events").alias("_events"),
            F.sum("_at_night").alias("_at_night"),
            *[F.max_by(name, "_last").alias(name) for name in spans],
            F.struct(*week).alias("_7d"),
        )
    )
    return made.select(
        "user_id",
        "feature_date",
        "last_event_time",
        *[each for name in (*SPANS, "7d") for each in _told(f"_{name}", name)],
        (F.col("_at_night") / F.col("_events")).alias("night_share_7d"),
        F.timestamp_diff("SECOND", F.get("_latest", F.lit(1)), F.get("_latest", F.lit(0))).alias(
            "seconds_between_last_two"
        ),
    )


def _latest_two(times: Column) -> Column:
    return F.slice(F.sort_array(times, asc=False), 1, 2)


def _collected(within: Column) -> Column:
    """What is known of the events within a span, so that it can be put together with that of others."""
    purchase = within & (F.col("event_type") == "purchase")
    amount = F.when(purchase, F.col("amount"))
    return F.struct(
        F.count_if(purchase).alias("purchases"),
        F.sum(amount).alias("amount"),
        F.sum(amount * amount).alias("squares"),
        F.collect_set(F.when(within, F.col("payment_method"))).alias("methods"),
        F.collect_set(F.when(within, F.col("country"))).alias("countries"),
    )


def _told(span: str, name: str) -> list[Column]:
    """The columns of a span."""
    count, amount, squares = (F.col(f"{span}.{each}") for each in ADDED)
    # From exact sums: added up as floating-point numbers, it would depend on the order of the rows.
    spread = F.sqrt((count * squares - amount * amount).cast("double"))
    return [
        count.alias(f"purchases_{name}"),
        F.coalesce(amount, F.lit(0)).cast(MONEY).alias(f"amount_{name}"),
        F.try_divide(amount, count).cast(MONEY).alias(f"amount_mean_{name}"),
        F.try_divide(spread, count.cast("double")).alias(f"amount_stddev_{name}"),
        *[
            F.size(F.array_distinct(f"{span}.{each}")).cast("bigint").alias(f"{label}_{name}")
            for each, label in SETS.items()
        ],
    ]
