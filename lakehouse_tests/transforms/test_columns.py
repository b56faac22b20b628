"""Column helpers against plain Python, on the texts that sources really send."""

from __future__ import annotations

import hashlib
import hmac
import random
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from lakehouse.settings import get_settings, key_id, token_of
from lakehouse.transforms.addresses import SIGNS, without_addresses
from lakehouse.transforms.columns import masked, money, token, utc_timestamp, with_event_date, without_address
from lakehouse_tests.conftest import PII_KEY

Apply = Callable[[Callable[[Column], Column], Sequence[Any]], list[Any]]


@pytest.fixture
def apply(spark: SparkSession) -> Apply:
    """Results of a helper for each text, in order."""

    def run(helper: Callable[[Column], Column], texts: Sequence[Any]) -> list[Any]:
        frame = spark.createDataFrame(list(enumerate(texts)), "n int, text string").coalesce(1)
        return [row[0] for row in frame.orderBy("n").select(helper(F.col("text"))).collect()]

    return run


def test_money_rounds_half_up_exactly(apply: Apply) -> None:
    """Without it, a cent could be off: by half-even rounding, by rounding twice, or by a float on the way."""
    chance = random.Random(7)
    texts = ["0.005", "-0.005", "1.005", "2.675", "1.0049999999999999", "2.1449999999999996", "-2.1449999999999996"]
    texts += [
        "1e3",
        "1.5E-2",
        "+7",
        ".5",
        "5.",
        "9999999999999999.99",
        "0.00499999999999999999",
        "0.0049999999999999999999999999",
        "-2.67499999999999999999999999999999999999",
        "12345678901234567.89",
    ]
    texts += [repr(chance.uniform(-1000, 1000)) for _ in range(200)]
    texts += [repr(chance.randint(1, 10**6) / 1000 * 1.1) for _ in range(200)]
    limit = Decimal("9999999999999999.99")
    wanted = [Decimal(t).quantize(Decimal("0.01"), ROUND_HALF_UP) for t in texts]
    assert apply(money, texts) == [each if abs(each) <= limit else None for each in wanted]


def test_what_is_no_number_is_no_money(apply: Apply) -> None:
    """Without it, ANSI casts would fail the whole run for one bad amount."""
    texts = [
        None,
        "",
        " ",
        "ten",
        "1,50",
        "NaN",
        "Infinity",
        "1e400",
        "0x10",
        "1_000",
        "1 000",
        "--1",
        "1e25",
        "99999999999999999",
    ]
    assert apply(money, texts) == [None] * len(texts)


def test_a_number_of_millions_of_digits_is_not_read(apply: Apply) -> None:
    """Without it, one line of a few bytes would hold up the build of its day for minutes, or end the engine."""
    far = ["1e-1000000", "1E-0999999", "1e-\u0661\u0660\u0660\u0660\u0660", "0" * 2000 + "1", "9" * 1_000_000]
    assert apply(money, far) == [None] * len(far)
    near = ["1e-400", "1E+3", "0" * 900 + "1", "1." + "0" * 100_000]
    assert apply(money, near) == [Decimal(0), Decimal(1000), Decimal(1), Decimal(1)]


INSTANTS = {
    "2026-03-02T10:20:30Z": "2026-03-02T10:20:30+00:00",
    "2026-03-02T10:20:30.123456Z": "2026-03-02T10:20:30.123456+00:00",
    "2026-03-02 10:20:30": "2026-03-02T10:20:30+00:00",
    "2026-03-02 10:20": "2026-03-02T10:20:00+00:00",
    "2026-03-02T10:20Z": "2026-03-02T10:20:00+00:00",
    "2026-03-02 10:20+05:30": "2026-03-02T04:50:00+00:00",
    "2026-03-02T10:20-00:45": "2026-03-02T11:05:00+00:00",
    "2026-03-02T00:30:00+01:00": "2026-03-01T23:30:00+00:00",
    "2026-03-02T23:30:00-05:45": "2026-03-03T05:15:00+00:00",
    "2024-02-29T00:00:00Z": "2024-02-29T00:00:00+00:00",
    "1899-12-31T23:59:59.999999Z": "1899-12-31T23:59:59.999999+00:00",
    "0999-01-01T00:00:00Z": "0999-01-01T00:00:00+00:00",
    "9999-12-31T23:59:59.999999Z": "9999-12-31T23:59:59.999999+00:00",
    "9999-12-31T00:00:00+02:00": "9999-12-30T22:00:00+00:00",
    "0001-01-01T00:00:00Z": "0001-01-01T00:00:00+00:00",
    "0001-01-01T00:00:00-02:00": "0001-01-01T02:00:00+00:00",
}
NO_INSTANTS = [
    None, "", "soon", "2026-02-30T10:00:00Z", "2025-02-29 00:00", "2026-13-01T00:00:00Z", "2026-03-02T24:00:00Z",
    "1772445600", "1772445600000", "2026", "2026-03", "2026-03-02", "10:20", "10:20:30", "T10:20", "now", "today",
    "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+10:00", "9999-12-31T23:59:59-10:00",
    "2026-03-02T10:20:30 Europe/Berlin", "+99999-12-31T00:00:00Z", "-0001-01-01T00:00:00Z", "99999-12-31T00:00:00Z",
]  # fmt: skip


def test_instants_are_utc_unless_they_say_otherwise(spark: SparkSession) -> None:
    """Without it, an event could land in the neighbouring day, or in the time zone of the machine."""
    frame = spark.createDataFrame([(t,) for t in INSTANTS], "text string").coalesce(1)
    micros = [row[0] for row in frame.select(F.unix_micros(utc_timestamp(F.col("text")))).collect()]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert [epoch + timedelta(microseconds=m) for m in micros] == [datetime.fromisoformat(t) for t in INSTANTS.values()]


def test_what_is_no_instant_is_no_time(apply: Apply) -> None:
    """Without it, `10:20` would be an event of whichever day the pipeline happens to run on, `2026` one of New Year."""
    found = dict(zip(NO_INSTANTS, apply(lambda c: utc_timestamp(c).cast("string"), NO_INSTANTS), strict=True))
    assert {text: moment for text, moment in found.items() if moment is not None} == {}


@pytest.mark.parametrize(
    ("moment", "day"),
    [
        ("2026-03-01 23:59:59.999999", date(2026, 3, 1)),
        ("2026-03-03 12:00:00", date(2026, 3, 3)),
        ("2026-03-04 00:00:00", date(2026, 3, 2)),  # two days ahead: a broken clock
        ("2025-01-26 00:00:00", date(2025, 1, 26)),  # 400 days back
        ("2025-01-25 00:00:00", date(2026, 3, 2)),
        (None, date(2026, 3, 2)),
    ],
)
def test_an_implausible_time_stays_with_its_arrival(spark: SparkSession, moment: str | None, day: date) -> None:
    """Without it, each broken clock would make partitions of its own, years away."""
    frame = spark.range(1).select(F.lit(moment).alias("at"), F.lit("2026-03-02").cast("date").alias("_arrival_date"))
    assert with_event_date(frame, "at").first()["_event_date"] == day  # type: ignore[index]


@pytest.fixture(params=[PII_KEY, "k" * 64, "long key " * 20, "schlüssel"])
def key(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Keys shorter than, as long as and longer than a block."""
    monkeypatch.setenv("LAKEHOUSE_PII_KEY", request.param)
    get_settings.cache_clear()
    yield str(request.param)
    get_settings.cache_clear()


def test_tokens_are_hmac_sha_256(apply: Apply, key: str) -> None:
    """Without it, tokens could not be recomputed elsewhere, and a rotated or long key would make them wrong."""
    texts = ["a@example.com", "", "jörg@exämple.com", "x" * 1000, None]
    named = key_id(key.encode())
    wanted = [
        None if t is None else f"{named}:{hmac.new(key.encode(), t.encode(), hashlib.sha256).hexdigest()}"
        for t in texts
    ]
    assert apply(token, texts) == wanted


def test_tokens_are_made_in_any_thread(spark: SparkSession) -> None:
    """Without it, runs that compute in a thread of their own would have no engine to hold the key."""
    with ThreadPoolExecutor(1) as pool:
        frame = pool.submit(lambda: spark.range(1).select(token(F.lit("a")).alias("t"))).result()
    assert frame.collect() == [(token_of("a", PII_KEY.encode()),)]


def test_the_key_is_in_no_plan(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    """Without it, `explain`, the Spark UI and event logs would hold the key of all tokens."""
    frame = spark.createDataFrame([("a@example.com",)], "text string").select(token(F.col("text")).alias("t"))
    frame.explain(extended=True)
    plan = capfd.readouterr().out
    assert "sha2" in plan
    padded = PII_KEY.encode().ljust(64, b"\0")
    for pad in (bytes(b ^ 0x36 for b in padded), bytes(b ^ 0x5C for b in padded), PII_KEY.encode()):
        assert pad.hex()[:24].lower() not in plan.lower()
        assert pad.decode("latin-1") not in plan


LEAKS = {
    "mail alice@example.com now": "mail <e-mail> now",
    '{"email":"a.b+c_d@mail.example.co.uk"}': '{"email":"<e-mail>"}',
    "jörg.müller@exämple.com": "<e-mail>",
    "o'brien@example.com": "<e-mail>",
    'cut {"email":"alice\\u0040example.com"': 'cut {"email":"<e-mail>"',
    "alice%40example.com": "<e-mail>",
    "root@localhost": "<e-mail>",
    "a@b.c,d@e.f;g@h.i": "<e-mail>,<e-mail>;<e-mail>",
    "ALICE@EXAMPLE.COM": "<e-mail>",
    "alice＠example.com": "<e-mail>",
    "Alice+tag@Example.com": "<e-mail>",
    "alice%2540example.com alice&#64;example.com": "<e-mail> <e-mail>",
    '{"a":"\\"alice b\\"@example.com","@b":"@c"}': '{"a":"<e-mail>","@b":"@c"}',
    '"x","""alice b""@example.com"': '"x","<e-mail>"',
    "alice@\\u0065xample.com": "<e-mail>",
    "alice\\uFF20example.com": "<e-mail>",
    "alice@[192.168.0.1]": "<e-mail>",
}


def test_no_address_survives_masking(apply: Apply) -> None:
    """Without it, personal data would stay readable in raw and rescued text, which nobody tokenises."""
    found = dict(zip(LEAKS, apply(masked, list(LEAKS)), strict=True))
    for text, shown in found.items():
        assert not any(part in shown.lower() for part in ("alice", "example", "jörg", "müller", "brien", "a.b+c_d")), (
            text
        )
    assert found == LEAKS
    assert {text: without_addresses(text) for text in LEAKS} == LEAKS, "Python finds what Java finds"
    assert not [text for text in LEAKS if not any(sign in text for sign in SIGNS)]


def test_a_text_with_an_address_becomes_its_token_and_no_other_does(apply: Apply) -> None:
    """Without it, an address in any known column would be in tables, statistics and checks; or ids would fall together."""
    plain = ["alice", "", None, "12 @ 3.50 each", "C536379", "@", "100%25", "a \\u00e9"]
    assert apply(without_address, plain) == plain
    tokens = apply(without_address, list(LEAKS))
    assert all(re.fullmatch(r"[0-9a-f]{8}:[0-9a-f]{64}", each) for each in tokens)
    # The same address, with another sign.
    same = {"ALICE@EXAMPLE.COM", "alice＠example.com", "alice%40example.com", "alice\\uFF20example.com"}
    assert len(set(tokens)) == len(LEAKS) - len(same) + 1
    (email,) = apply(token, ["alice@example.com"])
    spelled = ["alice@example.com", " Alice@EXAMPLE.com ", "alice＠example.com", "alice%40example.com"]
    assert set(apply(without_address, spelled)) == {email}, "an id would depend on how it is written"


@pytest.mark.parametrize("part", ["\\", "%25", "a@", "@a", '\\"', '"a', "&#0", "\\u0040a", "a.", "25", '"', "[a"])
def test_a_long_line_costs_its_length(apply: Apply, part: str) -> None:
    """Without it, one line of a million backslashes would keep a run busy for ever: this test would not end."""
    text = "%" + part * 100_000
    assert isinstance(without_addresses(text), str)
    assert len(apply(masked, [text])) == len(apply(without_address, [text])) == 1


def test_masking_leaves_other_text_alone(apply: Apply) -> None:
    """Without it, a quarantined line could no longer be understood or replayed."""
    texts = ['{"id":"1","amount":12.50}', "12 @ 3.50 each", "a,b,,c", "", "@", "x @ y", None]
    assert apply(masked, texts) == texts
