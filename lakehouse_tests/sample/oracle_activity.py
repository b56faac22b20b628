"""What users do over time, recomputed with the standard library as in `oracle`: sessions, hours, features of fraud.

Each is written as its definition reads, one user and one event after the other, however slow that is.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from typing import Any, NamedTuple

from lakehouse_tests.sample.oracle import CENT, Transaction

PAUSE, LONGEST = timedelta(minutes=30), timedelta(hours=24)
DAYS_OF_FEATURES = 7
SPANS = {"1h": timedelta(hours=1), "24h": timedelta(hours=24)}


class Session(NamedTuple):
    """silver.sessions without its id."""

    user_id: str
    session_date: date
    session_start: datetime
    session_end: datetime
    events: int
    purchases: int
    cancellations: int
    orders: int
    amount: Decimal
    cancelled_amount: Decimal


class EventWindow(NamedTuple):
    """gold.event_windows as a batch computes it."""

    window_start: datetime
    source: str
    currency: str
    event_date: date
    events: int
    purchases: int
    cancellations: int
    gross_revenue: Decimal
    users: int
    closed_at_watermark: None = None
    corrections: int = 0


def by_user(transactions: Iterable[Transaction]) -> dict[str, list[Transaction]]:
    """The events of each known user, in the order of time."""
    found: dict[str, list[Transaction]] = defaultdict(list)
    for row in transactions:
        if row.user_id is not None:
            found[row.user_id].append(row)
    return {user: sorted(rows, key=_at) for user, rows in sorted(found.items())}


def _at(row: Transaction) -> datetime:
    assert row.event_time is not None
    return row.event_time


def silver_sessions(transactions: Iterable[Transaction], *, cut_at_midnight: bool = True) -> list[Session]:
    """Sessions, one user after the other, each event judged by those before it, from the beginning of all.

    Args:
        transactions: all events.
        cut_at_midnight: whether a run of events that is 23.5 hours old at a midnight is cut there; without it, each
            session is cut 24 hours after its own start and nowhere else.
    """
    found = []
    for user, rows in by_user(transactions).items():
        parts: list[list[Transaction]] = []
        run = start = _at(rows[0])
        for before, row in zip([None, *rows], rows, strict=False):
            at = _at(row)
            midnight = datetime.combine(at.date(), time(), UTC)
            if before is None or at - _at(before) > PAUSE:
                run = start = at
                parts.append([])
            elif at - start > LONGEST or (
                cut_at_midnight and _at(before) < midnight and midnight - run >= LONGEST - PAUSE
            ):
                start = at
                parts.append([])
            parts[-1].append(row)
        found += [_session(user, part) for part in parts]
    return found


def _session(user: str, rows: list[Transaction]) -> Session:
    bought, undone = (_amounts(rows, kind) for kind in ("purchase", "cancellation"))
    orders = {(row.source, row.order_id) for row in rows if row.order_id is not None}
    start, end = _at(rows[0]), _at(rows[-1])
    counts = len(rows), len(bought), len(undone), len(orders)
    return Session(user, start.date(), start, end, *counts, _sum(bought), _sum(undone))


def _amounts(rows: Iterable[Transaction], kind: str) -> list[Decimal]:
    return [row.amount for row in rows if row.event_type == kind and row.amount is not None]


def _sum(amounts: Iterable[Decimal]) -> Decimal:
    return sum(amounts, Decimal("0.00"))


def gold_event_windows(transactions: Iterable[Transaction]) -> list[EventWindow]:
    """Hours with events, by source and currency."""
    groups: dict[tuple[datetime, str, str], list[Transaction]] = defaultdict(list)
    for row in transactions:
        hour = _at(row).replace(minute=0, second=0, microsecond=0)
        groups[hour, row.source, row.currency or ""].append(row)
    found = []
    for (hour, source, currency), rows in sorted(groups.items()):
        bought, undone = (_amounts(rows, kind) for kind in ("purchase", "cancellation"))
        users = len({row.user_id for row in rows} - {None})
        counts = len(rows), len(bought), len(undone)
        found.append(EventWindow(hour, source, currency, hour.date(), *counts, _sum(bought), users))
    return found


def gold_user_fraud_features(
    transactions: Iterable[Transaction], feature_dates: Iterable[date]
) -> Iterator[dict[str, Any]]:
    """The features of each user with an event in the seven days that end with a date, looked for anew each time."""
    events = by_user(transactions)
    for day in sorted(set(feature_dates)):
        for user, rows in events.items():
            week = [row for row in rows if 0 <= (day - row.event_date).days < DAYS_OF_FEATURES]
            if not week:
                continue
            last = _at(week[-1])
            spans = {name: [row for row in rows if last - span < _at(row) <= last] for name, span in SPANS.items()}
            made: dict[str, Any] = {"user_id": user, "feature_date": day, "last_event_time": last}
            for name, held in {**spans, "7d": week}.items():
                made |= {f"{column}_{name}": value for column, value in _of_span(held).items()}
            gaps = [_at(row) - _at(before) for before, row in pairwise(week)]
            yield made | {
                "night_share_7d": sum(_at(row).hour < 6 for row in week) / len(week),
                "seconds_between_last_two": gaps[-1] // timedelta(seconds=1) if gaps else None,
            }


def _of_span(rows: list[Transaction]) -> dict[str, Any]:
    amounts = _amounts(rows, "purchase")
    total, number = _sum(amounts), len(amounts)
    mean = (total / number).quantize(CENT, rounding=ROUND_HALF_UP) if number else None
    # n·Σx² - (Σx)² is exact, and so is rounded once only.
    apart = math.sqrt(number * sum(each * each for each in amounts) - total * total) / number if number else None
    return {
        "purchases": number,
        "amount": total,
        "amount_mean": mean,
        "amount_stddev": apart,
        "payment_methods": len({row.payment_method for row in rows} - {None}),
        "countries": len({row.country for row in rows} - {None}),
    }


def known_answers(transactions: list[Transaction]) -> dict[str, Any]:
    """Figures of the real data's events.

    Args:
        transactions: silver.transactions of the retail system.
    """
    sessions, windows = silver_sessions(transactions), gold_event_windows(transactions)
    features = list(gold_user_fraud_features(transactions, [date(2011, 8, 31)]))
    best = max(windows, key=lambda each: each.gross_revenue)
    totals = Counter[str]()
    for row in features:
        totals.update({name: row[f"purchases_{name}"] for name in (*SPANS, "7d")})
    return {
        "sessions": (len(sessions), sum(each.events for each in sessions), sum(each.purchases for each in sessions)),
        "longest_session": max(each.session_end - each.session_start for each in sessions),
        "most_events": max(each.events for each in sessions),
        "of_one_event": sum(each.events == 1 for each in sessions),
        "windows": (len(windows), sum(each.events for each in windows), sum(each.users for each in windows)),
        "best_hour": (best.window_start, best.gross_revenue),
        "fraud": (len(features), *totals.values(), sum(row["amount_1h"] for row in features)),
    }
