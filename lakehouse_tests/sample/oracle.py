"""Every silver and gold table recomputed from landing files with the standard library: the yardstick of the pipeline.

It shares no code with `lakehouse`, reads the same files, and follows DOMAIN.md. Where that text leaves room, the
reading taken here is written beside the code. All instants are aware UTC datetimes, money is `Decimal` with two digits.
"""

import csv
import gzip
import hashlib
import hmac
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

_COLUMNS = "InvoiceNo StockCode Description Quantity InvoiceDate UnitPrice CustomerID Country"
ONLINE_RETAIL_COLUMNS = tuple(_COLUMNS.split())
CLOCK_SKEW = timedelta(minutes=15)
WINDOW_DAYS = 7
REPEATED_WITHIN = timedelta(days=1)
CENT = Decimal("0.01")
LARGEST_AMOUNT = Decimal(1_000_000)
MONEY_LIMIT = Decimal(10) ** 16 - CENT / 2
# Active alphabetic codes of countries and unions; no metals, funds or test codes.
_CODES = """
    AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLP CNY COP
    CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR
    IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU
    MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG
    SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VES VND VUV WST
    XAF XCD XCG XOF XPF YER ZAR ZMW ZWG
"""
ISO_4217 = frozenset(_CODES.split())

_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)


class Landed(NamedTuple):
    """One bronze row: the raw texts of one record and where it lay. `row` counts records of a file from 1."""

    source: str
    arrival_date: date
    file: str
    row: int
    values: Mapping[str, str | None]


class Malformed(NamedTuple):
    """A line of an events file that is no JSON object: bronze's quarantine, no bronze row."""

    arrival_date: date
    file: str
    row: int


class Transaction(NamedTuple):
    """silver.transactions, grain: one event. Before the rules ran, any field but `source` can be missing."""

    event_id: str | None
    source: str
    order_id: str | None
    user_id: str | None
    event_type: str | None
    event_time: datetime | None
    event_date: date
    amount: Decimal | None
    currency: str | None
    payment_method: str | None = None
    country: str | None = None
    product_code: str | None = None
    quantity: int | None = None
    unit_price: Decimal | None = None
    email_token: str | None = None


class Quarantined(NamedTuple):
    """A row that failed, with every rule it failed. Its `event_date` is the arrival date if its time cannot be used."""

    transaction: Transaction
    failed_rules: tuple[str, ...]
    landed: Landed


class Silver(NamedTuple):
    """What becomes of landed rows: `len(landed) == len(rows) + len(quarantined) + len(duplicates)`."""

    rows: list[Transaction]
    quarantined: list[Quarantined]
    duplicates: list[Landed]


class Order(NamedTuple):
    """silver.orders, grain: one order of one source. `lines` counts its events and `amount` sums them, cancellations included."""

    order_id: str
    source: str
    user_id: str | None
    order_date: date
    ordered_at: datetime
    status: str
    lines: int
    amount: Decimal
    currency: str
    country: str | None


class DailyRevenue(NamedTuple):
    """gold.daily_revenue, grain: day × country × currency."""

    event_date: date
    country: str | None
    currency: str
    purchases: int
    cancellations: int
    gross_revenue: Decimal
    cancelled_amount: Decimal
    net_revenue: Decimal


class UserFeatures(NamedTuple):
    """gold.user_features, grain: known user × day with a purchase in the window."""

    user_id: str
    feature_date: date
    rolling_7d_transaction_count: int
    rolling_7d_amount: Decimal
    user_7d_order_count: int
    last_event_time: datetime


def read_online_retail(files: Iterable[Path]) -> Iterator[Landed]:
    """Yield the rows of `YYYY-MM-DD.csv.gz` exports; an empty field is a missing one."""
    for path in sorted(files):
        arrival_date = date.fromisoformat(path.name.split(".")[0])
        with gzip.open(path, "rt", encoding="utf-8", errors="replace", newline="") as lines:
            for row, values in enumerate(csv.DictReader(lines), start=1):
                texts = {name: values.get(name) or None for name in ONLINE_RETAIL_COLUMNS}
                yield Landed("online_retail", arrival_date, path.name, row, texts)


def read_events(files: Iterable[Path]) -> tuple[list[Landed], list[Malformed]]:
    """Read `YYYY-MM-DD/*.jsonl[.gz]`, split into rows and malformed lines; a blank line is a malformed one.

    A field keeps the text it has in the file: a number or boolean its literal, a nested value its compact JSON.
    """
    landed: list[Landed] = []
    malformed: list[Malformed] = []
    for path in sorted(files):
        arrival_date, name = date.fromisoformat(path.parent.name), f"{path.parent.name}/{path.name}"
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for row, line in enumerate(io.StringIO(raw.decode("utf-8", errors="replace"), newline="\n"), start=1):
            try:
                record = json.loads(line, parse_float=str, parse_int=str, parse_constant=str)
            except (ValueError, RecursionError):
                record = None
            if isinstance(record, dict):
                texts = {field: _json_text(value) for field, value in record.items()}
                landed.append(Landed("events", arrival_date, name, row, texts))
            else:
                malformed.append(Malformed(arrival_date, name, row))
    return landed, malformed


def _json_text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=100_000)
def _instant(text: str | None) -> datetime | None:
    """Parse ISO-8601 date and time; without an offset it is UTC. A date alone is no instant."""
    if text is None or not _INSTANT.fullmatch(text):
        return None
    try:
        parsed = datetime.fromisoformat(text)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _decimal(text: str | None) -> Decimal | None:
    return Decimal(text.strip()) if text is not None and _NUMBER.fullmatch(text.strip()) else None


def _money(value: Decimal | None) -> Decimal | None:
    """Round to decimal(18,2); what does not fit it is missing."""
    fits = value is not None and abs(value) < MONEY_LIMIT
    return value.quantize(CENT, rounding=ROUND_HALF_UP) if value is not None and fits else None


def _online_retail_transaction(values: Mapping[str, str | None]) -> Transaction:
    invoice, customer, quantity_text = values["InvoiceNo"], values["CustomerID"], values["Quantity"]
    quantity = int(quantity_text) if quantity_text and _INTEGER.fullmatch(quantity_text) else None
    unit_price = _decimal(values["UnitPrice"])
    raw = "|".join(values[name] or "" for name in ONLINE_RETAIL_COLUMNS)
    return Transaction(
        event_id=hashlib.sha256(raw.encode()).hexdigest()[:32],
        source="online_retail",
        order_id=invoice,
        user_id=customer.removesuffix(".0") if customer else None,
        event_type={"C": "cancellation", "A": "adjustment"}.get((invoice or "")[:1], "purchase"),
        event_time=_instant(values["InvoiceDate"]),
        event_date=date.min,
        # The product is rounded, not its factors.
        amount=_money(quantity * unit_price) if quantity is not None and unit_price is not None else None,
        currency="GBP",
        country=values["Country"],
        product_code=values["StockCode"],
        quantity=quantity,
        unit_price=_money(unit_price),
    )


def _events_transaction(values: Mapping[str, str | None], email_key: bytes | None) -> Transaction:
    email, get = values.get("email"), values.get
    token = _token(email, email_key) if email and email_key else None
    return Transaction(
        event_id=get("event_id"),
        source="events",
        order_id=get("order_id"),
        user_id=get("user_id"),
        event_type=get("event_type"),
        event_time=_instant(get("event_time")),
        event_date=date.min,
        amount=_money(_decimal(get("amount"))),
        currency=get("currency"),
        payment_method=get("payment_method"),
        country=get("country"),
        email_token=token,
    )


def _token(text: str, key: bytes) -> str:
    """`<key id>:<HMAC>`; the id is the start of the key's HMAC over a fixed text."""
    made, name = (hmac.new(key, each, hashlib.sha256).hexdigest() for each in (text.encode(), b"lakehouse key id"))
    return f"{name[:8]}:{made}"


def failed_rules(row: Transaction, latest: datetime, currencies: Collection[str] = ISO_4217) -> tuple[str, ...]:
    """Name the rules that the row fails, in DOMAIN.md's order; `latest` is the last event time it can have.

    A rule fails unless it holds, so a missing amount fails every rule about it. Only the rule on the future says
    nothing about a missing time, because `event_time_present` has already said it.
    """
    amount, kind = row.amount, row.event_type
    holds = {
        "event_id_present": row.event_id is not None,
        "event_time_present": row.event_time is not None,
        "event_time_not_in_future": row.event_time is None or row.event_time <= latest,
        "event_type_known": kind in {"purchase", "cancellation"},
        "purchase_amount_positive": kind != "purchase" or (amount is not None and amount > 0),
        "cancellation_amount_negative": kind != "cancellation" or (amount is not None and amount < 0),
        "currency_known": row.currency in currencies,
        "amount_within_bounds": amount is not None and abs(amount) <= LARGEST_AMOUNT,
    }
    return tuple(name for name, passed in holds.items() if not passed)


def silver_transactions(
    landed: Iterable[Landed], *, email_key: bytes | None = None, currencies: Collection[str] = ISO_4217
) -> Silver:
    """Type, deduplicate, then judge rows.

    A row is a duplicate where another row of its event id, on its day or a day beside it, comes first: by arrival, then
    file, then row; it is one too where that other row is itself a duplicate. Rows without an event id never are. `email_token` is empty without `email_key`.
    """
    silver = Silver([], [], [])
    seen: dict[str | None, set[date]] = defaultdict(set)
    for row in sorted(landed, key=lambda row: (row.arrival_date, row.file, row.row)):
        is_retail = row.source == "online_retail"
        typed = _online_retail_transaction(row.values) if is_retail else _events_transaction(row.values, email_key)
        latest = datetime.combine(row.arrival_date, time(), UTC) + timedelta(days=1) + CLOCK_SKEW
        if typed.event_time is not None and typed.event_time <= latest:
            typed = typed._replace(event_date=typed.event_time.date())
        else:
            typed = typed._replace(event_date=row.arrival_date)
        if any(abs(day - typed.event_date) <= REPEATED_WITHIN for day in seen[typed.event_id]):
            silver.duplicates.append(row)
        elif failed := failed_rules(typed, latest, currencies):
            silver.quarantined.append(Quarantined(typed, failed, row))
        else:
            silver.rows.append(typed)
        if typed.event_id is not None:
            seen[typed.event_id].add(typed.event_date)
    return silver


def silver_orders(transactions: Iterable[Transaction]) -> list[Order]:
    """Group events into orders, by source and order id; who, where and which currency are those of an order's first event."""
    events: dict[tuple[str, str], list[Transaction]] = defaultdict(list)
    for row in transactions:
        if row.order_id is not None:
            events[row.order_id, row.source].append(row)
    orders = []
    for (order_id, source), rows in sorted(events.items()):
        first = min(rows, key=lambda row: (row.event_time, row.event_id))
        status = "cancelled" if any(row.event_type == "cancellation" for row in rows) else "placed"
        at, currency, total = first.event_time, first.currency, _total(rows)
        assert at is not None
        assert currency is not None
        orders.append(
            Order(
                order_id, source, first.user_id, first.event_date, at, status, len(rows), total, currency, first.country
            )
        )
    return orders


def _total(rows: Iterable[Transaction]) -> Decimal:
    return sum((row.amount for row in rows if row.amount is not None), Decimal("0.00"))


def gold_daily_revenue(transactions: Iterable[Transaction]) -> list[DailyRevenue]:
    """Sum purchases and cancellations; a missing country is a group of its own."""
    groups: dict[tuple[date, str | None, str], list[Transaction]] = defaultdict(list)
    for row in transactions:
        groups[row.event_date, row.country, row.currency or ""].append(row)
    revenue = []
    for (day, country, currency), rows in sorted(groups.items(), key=lambda group: str(group[0])):
        purchases = [row for row in rows if row.event_type == "purchase"]
        cancellations = [row for row in rows if row.event_type == "cancellation"]
        gross, cancelled, net = _total(purchases), _total(cancellations), _total(rows)
        counts = len(purchases), len(cancellations)
        revenue.append(DailyRevenue(day, country, currency, *counts, gross, cancelled, net))
    return revenue


def gold_user_features(transactions: Iterable[Transaction], feature_dates: Iterable[date]) -> list[UserFeatures]:
    """Compute features by event time: an event counts from its own day on, on whichever day it arrived.

    Sorted by date, then user.
    """
    by_day: dict[date, list[Transaction]] = defaultdict(list)
    cancelled_on: dict[tuple[str, str], date] = {}
    for row in transactions:
        if row.user_id is not None:
            by_day[row.event_date].append(row)
        if row.event_type == "cancellation" and row.order_id is not None:
            order = row.source, row.order_id
            cancelled_on[order] = min(row.event_date, cancelled_on.get(order, date.max))
    features = []
    for feature_date in sorted(set(feature_dates)):
        window: dict[str, list[Transaction]] = defaultdict(list)
        for age in range(WINDOW_DAYS):
            for row in by_day.get(feature_date - timedelta(days=age), ()):
                window[row.user_id or ""].append(row)
        for user_id, rows in sorted(window.items()):
            purchases = [row for row in rows if row.event_type == "purchase"]
            if not purchases:
                continue
            orders = {(row.source, row.order_id) for row in purchases if row.order_id is not None}
            features.append(
                UserFeatures(
                    user_id,
                    feature_date,
                    len(purchases),
                    _total(purchases),
                    sum(cancelled_on.get(order, date.max) > feature_date for order in orders),
                    max(row.event_time for row in rows if row.event_time is not None),
                )
            )
    return features


def known_answers(landed: list[Landed], silver: Silver) -> dict[str, Any]:
    """Return DOMAIN.md's known answers, from the lines of the `online_retail` files and what they come to.

    `features` holds, for each of the two dates, (users, Σ transactions, Σ orders) and, under the sample user's id,
    that user's (transactions, orders), or None if the user has no row.
    """
    types = Counter(row.event_type for row in silver.rows)
    orders = silver_orders(silver.rows)
    revenue = gold_daily_revenue(silver.rows)
    samples = {date(2011, 8, 31): "17841", date(2011, 1, 27): "16222"}
    features: dict[str, dict[str, tuple[int, ...] | None]] = {}
    rows = gold_user_features(silver.rows, samples)
    for feature_date, user_id in samples.items():
        day = [row for row in rows if row.feature_date == feature_date]
        counts = {row.user_id: (row.rolling_7d_transaction_count, row.user_7d_order_count) for row in day}
        totals = (len(day), sum(count[0] for count in counts.values()), sum(count[1] for count in counts.values()))
        features[feature_date.isoformat()] = {"totals": totals, user_id: counts.get(user_id)}
    return {
        "lines": len(landed),
        "days": len({row.arrival_date for row in landed}),
        "duplicates": len(silver.duplicates),
        "quarantined": dict(Counter(rule for row in silver.quarantined for rule in row.failed_rules)),
        "transactions": len(silver.rows),
        "purchases": types["purchase"],
        "cancellations": types["cancellation"],
        "guest_rows": sum(row.user_id is None for row in silver.rows),
        "orders": len(orders),
        "cancelled_orders": sum(order.status == "cancelled" for order in orders),
        "gross_revenue": sum(row.gross_revenue for row in revenue),
        "gross_revenue_uk": sum(row.gross_revenue for row in revenue if row.country == "United Kingdom"),
        "features": features,
    }
