"""bronze.orders keeps every version as text, in the day of its order."""

from datetime import date

from pyspark.sql import SparkSession

from lakehouse.bronze.orders import orders


def test_a_version_is_in_the_day_of_its_order(spark: SparkSession) -> None:
    """Without it, versions of one order would be scattered over the days they arrived in, and old orders lost."""
    nothing = dict.fromkeys(orders.columns) | {"_arrival_date": date(2026, 3, 9)}
    rows = [
        nothing | {"order_id": "old", "created_at": "1999-12-31T23:59:59.999999Z"},
        nothing | {"order_id": "new", "created_at": "2026-03-09T00:00:00.000000Z", "amount": "1.50"},
        nothing | {"order_id": "undated"},
        nothing | {"order_id": "ahead", "created_at": "2036-01-01T00:00:00.000000Z"},
    ]
    made = {r["order_id"]: r for r in orders.transform(spark.createDataFrame(rows, orders.schema)).collect()}
    days = {order: row["_event_date"] for order, row in made.items()}
    arrival = date(2026, 3, 9)
    assert days == {"old": date(1999, 12, 31), "new": arrival, "undated": arrival, "ahead": arrival}
    assert made["new"]["amount"] == "1.50"
