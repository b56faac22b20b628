"""silver.sessions: a user's visits, each in the UTC day it began."""

from __future__ import annotations

from datetime import timedelta

import pandera.pyspark as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.contracts import Count, Input, Layout, Privacy, SliceBy, Sum, table

PAUSE = timedelta(minutes=30)  # the longest between two events of one session
LONGEST = timedelta(hours=24)  # of a session


class Sessions(pa.DataFrameModel):
    """Sessions of known users: events, purchases and cancellations alike, without a pause of more than 30 minutes.

    A run of events without such a pause is one session, unless it goes on for about a day:

    * An event more than 24 hours after the run's start begins a new session.
    * At the first midnight at which the run is 23.5 hours old or older, and at every midnight after it, the first
      event of the day begins a new session.

    So no session is open longer than 24 hours, and a day's sessions are known from the events of that day and of the
    days beside it, however long a run goes on. The second line is for that: were each session cut 24 hours after its
    own start, a day would depend on the run's start, which may be years ago. Sessions differ from such a cut only in
    runs that last for more than 23.5 hours.
    """

    session_id: T.StringType() = pa.Field(description="Hash of user and start: the same as long as these are")
    user_id: T.StringType() = pa.Field(description="Customer")
    session_date: T.DateType() = pa.Field(description="UTC date of session_start")
    session_start: T.TimestampType() = pa.Field(description="First event, UTC")
    session_end: T.TimestampType() = pa.Field(description="Last event, UTC; the start where there is one event only")
    events: T.LongType() = pa.Field(ge=1, description="Purchases and cancellations")
    purchases: T.LongType() = pa.Field(ge=0, description="Purchase events")
    cancellations: T.LongType() = pa.Field(ge=0, description="Cancellation events")
    orders: T.LongType() = pa.Field(ge=0, description="Distinct orders; each shop numbers its own")
    amount: T.DecimalType(18, 2) = pa.Field(ge=0, description="Sum of purchases, whatever their currency")
    cancelled_amount: T.DecimalType(18, 2) = pa.Field(le=0, description="Sum of cancellations, whatever their currency")


@table(
    model=Sessions,
    inputs={"transactions": Input("silver.transactions", days_before=1, days_after=1)},
    partition_by="session_date",
    key=("user_id", "session_id"),
    layout=Layout(slice_by=SliceBy(("user_id",))),
    owner="team:web-shop",
    grain="one session of one user",
    figures={"sessions": Count(), "events": Sum("events")},
    privacy=Privacy(person=("user_id",)),
)
def sessions(transactions: DataFrame) -> DataFrame:
    """Finds the start of each event's run, then groups by it and by the cuts within the run."""
    in_order = Window.partitionBy("user_id").orderBy("event_time")
    time, before = F.col("event_time"), F.lag("event_time").over(in_order)
    begins = before.isNull() | (time > before + F.lit(PAUSE))
    purchase = F.col("event_type") == "purchase"
    zero = F.lit(0).cast("decimal(18,2)")
    order = F.when(F.col("order_id").isNotNull(), F.struct("source", "order_id"))
    return (
        transactions.where(F.col("user_id").isNotNull())
        .withColumn("_begins", F.when(begins, time))
        .withColumn("_run", F.max("_begins").over(in_order))
        .groupBy("user_id", "_run", _part(time, F.col("_run")).alias("_part"))
        .agg(
            F.min("event_time").alias("session_start"),
            F.max("event_time").alias("session_end"),
            F.count(F.lit(1)).alias("events"),
            F.count_if(purchase).alias("purchases"),
            F.count_if(~purchase).alias("cancellations"),
            F.size(F.collect_set(order)).cast("bigint").alias("orders"),
            F.sum(F.when(purchase, F.col("amount")).otherwise(zero)).cast("decimal(18,2)").alias("amount"),
            F.sum(F.when(~purchase, F.col("amount")).otherwise(zero)).cast("decimal(18,2)").alias("cancelled_amount"),
        )
        .withColumn("session_date", F.to_date("session_start"))
        .withColumn("session_id", _hash(F.col("user_id"), F.unix_micros("session_start").cast("string")))
    )


def _part(time: Column, run: Column) -> Column:
    """Which session of its run an event belongs to: text that is equal for events of one session.

    A run that began after the first 30 minutes of its day is not cut at the next midnight: it is then younger than
    23.5 hours, so what is left of its 24 hours is one session, and the rest of that next day another.
    """
    uncut = run > F.date_trunc("day", run) + F.lit(PAUSE)
    return F.when(uncut & (time <= run + F.lit(LONGEST)), "first").otherwise(F.to_date(time).cast("string"))


def _hash(*parts: Column) -> Column:
    return F.substring(F.sha2(F.concat_ws("|", *parts), 256), 1, 32)
