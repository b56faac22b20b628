"""The oracle against hand-written rows, each with one oddity, and against DOMAIN.md's known answers."""

import gzip
import hashlib
import json
import os
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from lakehouse_tests.sample import oracle, oracle_activity

HEADER = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country"
REAL_DATA = Path(
    os.environ.get("LAKEHOUSE_TEST_DATA", Path(__file__).resolve().parents[3] / "shared" / "data" / "online-retail")
)
DAY = date(2026, 3, 2)


def land_csv(folder: Path, day: str, lines: Sequence[str]) -> Path:
    path = folder / f"{day}.csv.gz"
    path.write_bytes(gzip.compress("\n".join([HEADER, *lines, ""]).encode()))
    return path


def land_events(folder: Path, day: date, *lines: dict[str, object] | str, name: str = "a.jsonl") -> Path:
    path = folder / day.isoformat() / name
    path.parent.mkdir(exist_ok=True)
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def event(event_id: str | None, moment: object, **changes: object) -> dict[str, object]:
    sound = {"event_type": "purchase", "order_id": "W1", "user_id": "u1", "amount": 10.5, "currency": "EUR"}
    return {"event_id": event_id, "event_time": moment} | sound | changes


def silver_of(*files: Path) -> oracle.Silver:
    return oracle.silver_transactions(oracle.read_events(files)[0])


def failures(silver: oracle.Silver) -> list[tuple[str | None, tuple[str, ...]]]:
    return [(row.transaction.event_id, row.failed_rules) for row in silver.quarantined]


def test_online_retail_rows_are_typed_deduplicated_and_judged(tmp_path: Path) -> None:
    first = '536365,85123A,"LAMP, ""RED"" ",6,2026-03-02 08:26:00,2.55,17850.0,United Kingdom'
    silver = oracle.silver_transactions(
        oracle.read_online_retail(
            [
                land_csv(
                    tmp_path,
                    "2026-03-02",
                    [
                        first,
                        first,  # an exact repeat is one event
                        "536366,22633,MUG,-4,2026-03-02 09:00:00,1.85,,United Kingdom",  # a negative purchase
                        "C536367,22633,MUG,-3,2026-03-02 09:10:00,1.85,17850.0,EIRE",
                        "A536368,B,Adjust bad debt,1,2026-03-02 09:20:00,11062.06,,United Kingdom",
                        "536369,M,Manual,1,2026-03-02 09:30:00,0.001,,United Kingdom",  # rounds to nothing
                        "536370,M,Manual,1,2026-03-02 09:40:00,0.005,,United Kingdom",  # half a cent rounds up
                        "536371,M,Manual,3,2026-03-02 09:50:00,0.005,,",  # 0.015, not 3 × 0.01
                        "536372,M,Manual,many,2026-03-02,5,17851.0,France",  # no number, and a date is no instant
                    ],
                )
            ]
        )
    )
    lamp = silver.rows[0]
    raw = '536365|85123A|LAMP, "RED" |6|2026-03-02 08:26:00|2.55|17850.0|United Kingdom'
    assert lamp == oracle.Transaction(
        event_id=hashlib.sha256(raw.encode()).hexdigest()[:32],
        source="online_retail",
        order_id="536365",
        user_id="17850",
        event_type="purchase",
        event_time=datetime(2026, 3, 2, 8, 26, tzinfo=UTC),
        event_date=DAY,
        amount=Decimal("15.30"),
        currency="GBP",
        country="United Kingdom",
        product_code="85123A",
        quantity=6,
        unit_price=Decimal("2.55"),
    )
    assert [(row.order_id, str(row.amount), row.user_id, row.country) for row in silver.rows[1:]] == [
        ("C536367", "-5.55", "17850", "EIRE"),
        ("536370", "0.01", None, "United Kingdom"),
        ("536371", "0.02", None, None),
    ]
    assert [(row.transaction.order_id, row.failed_rules) for row in silver.quarantined] == [
        ("536366", ("purchase_amount_positive",)),
        ("A536368", ("event_type_known",)),
        ("536369", ("purchase_amount_positive",)),
        ("536372", ("event_time_present", "purchase_amount_positive", "amount_within_bounds")),
    ]
    assert silver.quarantined[-1].transaction.event_date == DAY, "a row without a time belongs to its arrival day"
    assert [(row.file, row.row) for row in silver.duplicates] == [("2026-03-02.csv.gz", 2)]


def test_missing_columns_hash_as_empty_text(tmp_path: Path) -> None:
    [row] = oracle.read_online_retail([land_csv(tmp_path, "2026-03-02", ["1,,,2,2026-03-02 08:00:00,1,,"])])
    [typed] = oracle.silver_transactions([row]).rows
    assert typed.event_id == hashlib.sha256(b"1|||2|2026-03-02 08:00:00|1||").hexdigest()[:32]
    assert (typed.product_code, typed.user_id, typed.country) == (None, None, None)


def test_event_times(tmp_path: Path) -> None:
    """Only ISO-8601 text is a time; the day is UTC's; clocks may differ by a quarter of an hour."""
    silver = silver_of(
        land_events(
            tmp_path,
            DAY,
            event("utc", "2026-03-02T23:59:59.999999Z"),
            event("no-offset", "2026-03-02 10:00:00"),
            event("offset", "2026-03-02T00:30:00+01:00"),
            event("skewed", "2026-03-03T00:15:00Z"),
            event("future", "2026-03-03T00:15:00.000001Z"),
            event("epoch", 1772445600),
            event("date-only", "2026-03-02"),
            event("no-such-day", "2026-02-30T10:00:00Z"),
            event("null", None),
        )
    )
    assert {row.event_id: row.event_date for row in silver.rows} == {
        "utc": DAY,
        "no-offset": DAY,
        "offset": date(2026, 3, 1),
        "skewed": date(2026, 3, 3),
    }
    assert failures(silver) == [
        ("future", ("event_time_not_in_future",)),
        *((name, ("event_time_present",)) for name in ("epoch", "date-only", "no-such-day", "null")),
    ]
    assert {row.transaction.event_date for row in silver.quarantined} == {DAY}, "unusable times: the arrival day"


def test_each_rule_and_several_at_once(tmp_path: Path) -> None:
    at = "2026-03-02T10:00:00Z"
    silver = silver_of(
        land_events(
            tmp_path,
            DAY,
            event(None, at),
            event("", at),  # empty text is missing, and two missing ids are no duplicates
            event("type", at, event_type="page_view"),
            event("zero", at, amount=0),
            event("positive-cancellation", at, event_type="cancellation"),
            event("currency", at, currency="BTC"),
            event("bound", at, amount=1_000_000),
            event("huge", at, amount=1_000_000.01),
            event("beyond-decimal", at, amount=1e25),  # fits no decimal(18,2), so it is missing
            event("comma", at, amount="10,50"),
            event("text-amount", at, amount="10.505"),
            event("user-number", at, user_id=17),
            event("everything", "soon", event_type=None, amount=None, currency=None),
        )
    )
    assert {row.event_id: (row.user_id, row.amount) for row in silver.rows} == {
        "bound": ("u1", Decimal("1000000.00")),
        "text-amount": ("u1", Decimal("10.51")),
        "user-number": ("17", Decimal("10.50")),
    }
    no_amount = ("purchase_amount_positive", "amount_within_bounds")
    assert failures(silver) == [
        (None, ("event_id_present",)),
        (None, ("event_id_present",)),
        ("type", ("event_type_known",)),
        ("zero", ("purchase_amount_positive",)),
        ("positive-cancellation", ("cancellation_amount_negative",)),
        ("currency", ("currency_known",)),
        ("huge", ("amount_within_bounds",)),
        ("beyond-decimal", no_amount),
        ("comma", no_amount),
        ("everything", ("event_time_present", "event_type_known", "currency_known", "amount_within_bounds")),
    ]


def test_the_earliest_arrival_then_file_then_row_wins(tmp_path: Path) -> None:
    """Across arrivals, on one event day or on days beside it; two days apart the same id is another event."""
    at, next_day = "2026-03-02T10:00:00Z", date(2026, 3, 3)
    files = [
        land_events(tmp_path, next_day, event("a", at, country="late"), event("c", at, country="only")),
        land_events(tmp_path, DAY, event("a", at, country="file b"), name="b.jsonl.gz"),
        land_events(tmp_path, DAY, event("a", at, country="first"), event("a", at, country="row 2")),
        land_events(tmp_path, next_day, event("a", "2026-03-03T10:00:00Z", country="other day"), name="z.jsonl"),
        land_events(tmp_path, DAY, event("q", at, currency="?"), event("q", at), name="c.jsonl"),
        land_events(
            tmp_path,
            date(2026, 3, 4),
            event("c", "2026-03-04T10:00:00Z", country="two days on"),
            event("q", "2026-03-03T10:00:00Z"),
            event("a", "2026-03-04T10:00:00Z"),
        ),
    ]
    silver = silver_of(*files)
    assert [(row.event_id, row.country) for row in silver.rows] == [("a", "first"), ("c", "only"), ("c", "two days on")]
    assert [(row.file, row.row) for row in silver.duplicates] == [
        ("2026-03-02/a.jsonl", 2),
        ("2026-03-02/b.jsonl.gz", 1),
        ("2026-03-02/c.jsonl", 2),  # a repeat of a row that fails is still a repeat: duplicates go first
        ("2026-03-03/a.jsonl", 1),
        ("2026-03-03/z.jsonl", 1),
        ("2026-03-04/a.jsonl", 2),  # the row before it went to quarantine
        ("2026-03-04/a.jsonl", 3),  # the row a day before it is itself a duplicate
    ]
    assert failures(silver) == [("q", ("currency_known",))]


def test_malformed_lines_are_no_rows(tmp_path: Path) -> None:
    path = land_events(tmp_path, DAY, '{"event_id": "cut', "[]", "null", "", event("a", None), "42")
    rows, malformed = oracle.read_events([path])
    assert [row.values["event_id"] for row in rows] == ["a"]
    assert [line.row for line in malformed] == [1, 2, 3, 4, 6]


def test_email_is_stored_as_a_token_only(tmp_path: Path) -> None:
    path = land_events(tmp_path, DAY, event("a", "2026-03-02T10:00:00Z", email="a@example.com"))
    [row] = oracle.silver_transactions(oracle.read_events([path])[0], email_key=b"key").rows
    assert row.email_token == "27d637d9:a58174f17d84bb276f38bdb6296c740d521221a465299af8b66b54e5cc8e18bf"
    assert "a@example.com" not in map(str, row)


def shop(tmp_path: Path) -> list[oracle.Transaction]:
    """W1: two lines, cancelled four days later. W2: a guest's. W3: in another currency, on the day W1 is cancelled."""
    return silver_of(
        land_events(
            tmp_path,
            date(2026, 3, 9),
            event("1", "2026-03-02T10:00:00Z", country="France"),
            event("2", "2026-03-02T10:00:01Z", amount=2, country="France"),
            event("3", "2026-03-02T11:00:00Z", order_id="W2", user_id=None, amount=5, country="Spain"),
            event("4", "2026-03-06T12:00:00Z", event_type="cancellation", amount=-12.5, country="France"),
            event("5", "2026-03-06T09:00:00Z", order_id="W3", amount=7, currency="GBP"),
            event("6", "2026-03-06T09:30:00Z", order_id=None, amount=1),  # no order: revenue, but no order row
        )
    ).rows


def test_orders(tmp_path: Path) -> None:
    first, later = datetime(2026, 3, 2, 10, tzinfo=UTC), date(2026, 3, 6)
    assert oracle.silver_orders(shop(tmp_path)) == [
        oracle.Order("W1", "events", "u1", DAY, first, "cancelled", 3, Decimal("0.00"), "EUR", "France"),
        oracle.Order("W2", "events", None, DAY, first.replace(hour=11), "placed", 1, Decimal("5.00"), "EUR", "Spain"),
        oracle.Order(
            "W3", "events", "u1", later, datetime(2026, 3, 6, 9, tzinfo=UTC), "placed", 1, Decimal("7.00"), "GBP", None
        ),
    ]


def test_orders_of_two_shops_with_one_id_are_two(tmp_path: Path) -> None:
    """The retail system's order is not cancelled, and its buyer's count is not lessened, by the web shop's."""
    web = land_events(
        tmp_path,
        DAY,
        event("1", "2026-03-02T10:00:00Z", order_id="536365", user_id="17850"),
        event("2", "2026-03-02T11:00:00Z", order_id="536365", event_type="cancellation", amount=-10.5),
    )
    retail = land_csv(tmp_path, "2026-03-02", ["536365,85123A,LAMP,6,2026-03-02 08:26:00,2.55,17850.0,United Kingdom"])
    rows = oracle.silver_transactions([*oracle.read_events([web])[0], *oracle.read_online_retail([retail])]).rows
    assert [(each.source, each.status, each.lines) for each in oracle.silver_orders(rows)] == [
        ("events", "cancelled", 2),
        ("online_retail", "placed", 1),
    ]
    (features,) = oracle.gold_user_features(rows, [DAY])
    assert (features.rolling_7d_transaction_count, features.user_7d_order_count) == (2, 1)


def test_daily_revenue(tmp_path: Path) -> None:
    later = date(2026, 3, 6)

    def row(
        day: date, country: str | None, currency: str, counts: tuple[int, int], gross: str, undone: str, net: str
    ) -> oracle.DailyRevenue:
        return oracle.DailyRevenue(day, country, currency, *counts, Decimal(gross), Decimal(undone), Decimal(net))

    assert set(oracle.gold_daily_revenue(shop(tmp_path))) == {
        row(DAY, "France", "EUR", (2, 0), "12.50", "0.00", "12.50"),
        row(DAY, "Spain", "EUR", (1, 0), "5.00", "0.00", "5.00"),
        row(later, "France", "EUR", (0, 1), "0.00", "-12.50", "-12.50"),
        row(later, None, "EUR", (1, 0), "1.00", "0.00", "1.00"),
        row(later, None, "GBP", (1, 0), "7.00", "0.00", "7.00"),
    }


def test_user_features_are_as_known_at_the_end_of_the_day(tmp_path: Path) -> None:
    """The cancellation of 6 March does not reach back; a window is seven days; a cancellation alone makes no row."""
    dates = [date(2026, 3, day) for day in (1, 2, 5, 6, 8, 9, 12, 13)]
    rows = oracle.gold_user_features(shop(tmp_path), dates)
    cancelled_at = datetime(2026, 3, 6, 12, tzinfo=UTC)
    placed_at = datetime(2026, 3, 2, 10, 0, 1, tzinfo=UTC)
    assert [(row.feature_date.day, *row[2:]) for row in rows] == [
        (2, 2, Decimal("12.50"), 1, placed_at),
        (5, 2, Decimal("12.50"), 1, placed_at),
        (6, 4, Decimal("20.50"), 1, cancelled_at),
        (8, 4, Decimal("20.50"), 1, cancelled_at),
        (9, 2, Decimal("8.00"), 1, cancelled_at),
        (12, 2, Decimal("8.00"), 1, cancelled_at),
    ]
    assert {row.user_id for row in rows} == {"u1"}, "guests have no features"


@pytest.fixture(scope="module")
def real() -> tuple[list[oracle.Landed], oracle.Silver]:
    """The lines of the real data and what they come to; half a minute."""
    if not REAL_DATA.is_dir():
        pytest.skip(f"no real data in {REAL_DATA}; set LAKEHOUSE_TEST_DATA")
    landed = list(oracle.read_online_retail(REAL_DATA.glob("*.csv.gz")))
    return landed, oracle.silver_transactions(landed)


@pytest.mark.slow
def test_known_answers_on_the_real_data(real: tuple[list[oracle.Landed], oracle.Silver]) -> None:
    assert oracle.known_answers(*real) == {
        "lines": 320_705,
        "days": 219,
        "duplicates": 2_483,
        "quarantined": {"event_type_known": 3, "purchase_amount_positive": 1_794},
        "transactions": 316_425,
        "purchases": 310_601,
        "cancellations": 5_824,
        "guest_rows": 86_845,
        "orders": 15_048,
        "cancelled_orders": 2_554,
        "gross_revenue": Decimal("6281692.71"),
        "gross_revenue_uk": Decimal("5248625.44"),
        "features": {
            "2011-08-31": {"totals": (198, 4_331, 218), "17841": (150, 2)},
            "2011-01-27": {"totals": (245, 5_726, 267), "16222": (122, 1)},
        },
    }


@pytest.mark.slow
def test_known_answers_on_what_users_do(real: tuple[list[oracle.Landed], oracle.Silver]) -> None:
    """The figures that the definitions of sessions, hours and features of fraud came with."""
    _, silver = real
    assert oracle_activity.known_answers(silver.rows) == {
        "sessions": (12_453, 229_580, 224_034),
        "longest_session": timedelta(minutes=60),
        "most_events": 281,
        "of_one_event": 1_547,
        "windows": (2_076, 316_425, 12_520),
        "best_hour": (datetime(2011, 1, 18, 10, tzinfo=UTC), Decimal("78348.66")),
        "fraud": (233, 3_573, 3_662, 4_331, Decimal("66463.50")),
    }
