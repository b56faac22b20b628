"""gold.daily_revenue: sums by day, country and currency."""

from decimal import Decimal

from pyspark.sql import SparkSession

from lakehouse.gold.daily_revenue import daily_revenue
from lakehouse.silver.transactions import transactions
from lakehouse_tests.silver.test_orders import transaction


def test_purchases_and_cancellations_are_kept_apart(spark: SparkSession) -> None:
    """Net is gross plus what was cancelled, each in its own day and currency."""
    rows = [
        transaction("a", "o1", "purchase", "2011-01-05T10:00", "10.00"),
        transaction("b", "o2", "purchase", "2011-01-05T11:00", "0.05"),
        transaction("c", "o0", "cancellation", "2011-01-05T12:00", "-4.00"),
        transaction("d", "o3", "purchase", "2011-01-05T12:00", "7.00") | {"currency": "USD"},
        transaction("e", "o4", "cancellation", "2011-01-06T12:00", "-1.00") | {"country": None},
    ]
    made = daily_revenue.transform(spark.createDataFrame(rows, transactions.schema)).collect()
    found = {(str(r["event_date"]), r["country"], r["currency"]): tuple(r)[3:] for r in made}
    zero = Decimal("0.00")
    assert found == {
        ("2011-01-05", "France", "EUR"): (2, 1, Decimal("10.05"), Decimal("-4.00"), Decimal("6.05")),
        ("2011-01-05", "France", "USD"): (1, 0, Decimal("7.00"), zero, Decimal("7.00")),
        ("2011-01-06", None, "EUR"): (0, 1, zero, Decimal("-1.00"), Decimal("-1.00")),
    }
