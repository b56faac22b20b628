"""Two small Delta tables of awkward values, and queries over them, for what answers in two engines."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

KNOWN = ["silver.o", "silver.p"]
DAYS = [date(2010, 12, 31), date(2011, 1, 1), date(2011, 1, 31), date(2012, 2, 29), date(1999, 6, 6), None]
_AT = [
    datetime(2011, 3, 6, 23, 59, 59, 999999, UTC),
    datetime(2011, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 30, 5, 500000, UTC),
]
ROWS = [
    {
        "id": number,
        "day": DAYS[number % 6],
        "name": ["a", "B", "", " x ", "é😀", None, "abc_%", "12", "-7.50", "O'Neil", "b", "\tt"][number % 12],
        "small": [1, -7, 0, None, 2**31 - 1, 3, 5][number % 7],
        "n": [1, 0, -7, 7, None, 2**40, -(2**63) + 1, 12, 100][number % 9],
        "amount": [Decimal("1.10"), Decimal("-0.05"), None, Decimal(0), Decimal("9999999999999.99"), Decimal("2.50"), Decimal("-2.45")][number % 7],
        "price": [Decimal("0.0001"), Decimal("12.3456"), None, Decimal("-1.0000")][number % 4],
        "x": [0.5, -0.0, math.nan, None, 1e300, math.inf, 2.675, -1.5, 1e-7, 3.0][number % 10],
        "flag": [True, False, None][number % 3],
        "at": None if number % 5 == 4 else _AT[number % 3],
        "tags": [["p", "q"], [], None, [None, "z"]][number % 4],
        "figures": [[("k", 1)], [], None, [("k", None), ("l", 2)]][number % 4],
        "nested": [{"a": 1, "b": {"c": "deep"}}, {"a": None, "b": None}, None][number % 3],
    }
    for number in range(60)
]  # fmt: skip
SCHEMA = pa.schema(
    {
        "id": pa.int32(),
        "day": pa.date32(),
        "name": pa.string(),
        "small": pa.int32(),
        "n": pa.int64(),
        "amount": pa.decimal128(18, 2),
        "price": pa.decimal128(10, 4),
        "x": pa.float64(),
        "flag": pa.bool_(),
        "at": pa.timestamp("us", "UTC"),
        "tags": pa.list_(pa.string()),
        "figures": pa.map_(pa.string(), pa.int64()),
        "nested": pa.struct({"a": pa.int32(), "b": pa.struct({"c": pa.string()})}),
    }
)


def make_tables(root: Path) -> None:
    """`silver.o`, by day and with a column that came later, and `silver.p`, of few rows."""
    path = root / "tables" / "silver" / "o"
    write_deltalake(path, pa.Table.from_pylist(ROWS[:30], SCHEMA).drop_columns(["price"]), partition_by=["day"])
    write_deltalake(path, pa.Table.from_pylist(ROWS[30:], SCHEMA), mode="append", schema_mode="merge")
    few = [{"name": "a", "small": 1, "rate": Decimal("1.5")}, {"name": "B", "small": None, "rate": None}]
    few += [{"name": None, "small": 3, "rate": Decimal("0.1")}, {"name": "a", "small": 9, "rate": Decimal("2.0")}]
    schema = pa.schema({"name": pa.string(), "small": pa.int32(), "rate": pa.decimal128(3, 1)})
    write_deltalake(root / "tables" / "silver" / "p", pa.Table.from_pylist(few, schema))


# Each is answered in this process.
ANSWERED = [
    "select count(*), count(name), count(distinct name, small), sum(n % 100), sum(amount), avg(amount), avg(price), avg(small), min(x), max(x), min(day), max(at), min(name), max(flag) from o where n > -100",
    "select day, count(*) n, sum(amount) total from o group by day having count(*) > 1 order by total desc, day",
    "select name, sum(amount) / count(*), sum(amount) / sum(price), avg(amount) / 3, amount_ from (select name, amount, price, 1 amount_ from o where price > 0) group by name, amount_",
    "select distinct name, flag from o order by name desc nulls first, 2",
    "select o.name, p.name as other, rate, o.amount * p.rate as m from o join p on o.name = p.name",
    "select name, o.small, rate from o left join p using (name)",
    "select * from p full join (select name, n from o where n < 5) q using (name)",
    "select * from p right join (select name, n from o where n < 5) q using (name)",
    "select * from o join p using (NAME)",
    "select * from p right join (select NAME, n from o where n < 5) q using (name)",
    "select * from p full join (select NAME, n from o where n < 5) q using (name)",
    "select p.*, q.n from p, (select name, n from o where n < 5) q where p.name <=> q.name",
    "select name from o left semi join p on o.name = p.name and o.small > 0",
    "select name, n from o left anti join p on o.name = p.name",
    "select sum(small % 9) over (order by id rows between 2 following and 2 following) a, max(n) over (order by id range between current row and unbounded following) b, min(n) over (order by id rows between unbounded preceding and 1 preceding) c from o",
    "select name, n, row_number() over (partition by name order by n, day, x) r, rank() over (order by small) k, dense_rank() over (order by small desc) d from o",
    "select day, sum(small % 10) over (partition by day order by n, x rows between 1 preceding and current row) s, lag(n) over (order by n, day, x, small) l, lead(n, 2, 0) over (order by n, day, x, small) m, count(*) over () c, avg(price) over (partition by day) a, sum(amount) over (order by day) z from o where x is null or x < 10",
    "select name, sum(small % 10) over w s from o window w as (partition by name)",
    "select sum(small % 10) over w s, sum(small % 10) over W t from o window w as (partition by name), W as (partition by flag)",
    "with a as (select name, n from o), b(k, m) as (select * from a where n > 1) select * from b union all select name, small from o where small > 0 except select 'x', 1",
    "select name from o intersect select name from p",
    "select name, amount from o union select name, rate from p",
    "select case when n > 1 then 'x' else name end c, case small when 1 then amount else 0 end d, if(flag, n, small) i, coalesce(amount, price, 0) e, nvl(name, '-') v, nullif(n, 7) u, greatest(n, small, 2) g, least(amount, price) l from o",
    "select * from o where name in ('a', 'B') and not (small between 1 and 3) or amount in (1.10, 2.50) and day >= '2011-01-01' and at < '2011-03-01 00:00:00'",
    "select name from o where name in (select name from p where name is not null) and exists (select 1 from p) and n < (select max(n) from o)",
    "select name from o where name not in (select name from p)",
    "select year(day), month(day), day(day), quarter(day), dayofweek(day), weekday(day), weekofyear(day), dayofyear(day), last_day(day), hour(at), minute(at), second(at), year(at) from o",
    "select date_trunc('month', day) a, date_trunc('WEEK', at) b, trunc(day, 'year') c, date_add(day, small % 100) d, date_sub(day, 1) e, datediff(day, date'2011-01-01') f, day + interval 1 day g, day - interval 1 month h, at + interval 3 hour i, add_months(day, 1) j, date_format(day, 'yyyy-MM') k, date_format(at, 'yyyy/MM/dd HH:mm:ss') l, cast(at as date) m, cast(day as timestamp) n, day + 1 o, to_date(at) p, extract(year from day) q, extract(month from at) r, extract(dayofweek from day) s, extract(week from day) t, at - interval 1 day u from o",
    "select cast(small as string), cast(n + 1 as string), cast(nested.a as string) q, cast(amount as string), cast(price as string), cast(day as string), cast(at as string), cast(flag as string), cast(amount as int) a from o where amount < 1000",
    "select cast(0.5 as string) a, cast(abs(-0.001) as string) b, cast(cast(small as decimal(5,2)) * 0 + 0.25 as string) c, cast(cast('0.000' as decimal(3,3)) as string) e from o where small < 100",
    "select flag = (small between 1 and 2) a, (flag = flag) in (true) b, small + 1 = n b2, flag = flag is null c, (name is null) is true d, not small in (1) e, small < 3 = flag f from o where small < 1000",
    "select -cast(amount as decimal(38,4)) a, abs(cast(amount as decimal(38,4))) b, -(1234567890123456789012345678901234) c from o",
    "select sum(cast(small as bigint)), count(cast(name as string)), -sum(cast(amount as decimal(25,2))) from o where small < 1000",
    "select -2::string a, 1 - -2::int b, 3 -2::int c, -2.5::int d, - 7 :: bigint e, -2L f, -2::string || 'x' from o",
    "select cast(small as string) || 'x', cast(nested.a as string) || 'x', length(cast(day as string)), cast(cast(amount as double) as decimal(20,3)), cast((small) as string), (cast(small as string)), -cast(small as bigint), cast(small as int) + 1 from o where small < 1000 and amount < 1000",
    "select cast(amount as double), cast(price as double), cast(small as decimal(12,1)), cast(x as decimal(20,3)) a, cast(x as bigint) b, cast(price as decimal(10,1)) c from o where abs(x) < 1000",
    "select cast('12' as int), cast('-7' as bigint), cast('1.5' as double), cast('2.505' as decimal(5,2)), cast('2011-01-01' as date), date'2011-01-01' d, timestamp'2011-01-01 10:00:00' t, try_cast('12' as int) y",
    "select round(amount, 1), round(price), round(x, 2) a, round(small), floor(x) b, ceil(price) c, floor(amount) d, floor(round(amount)) i, ceil(round(price)) j, abs(n) e, abs(amount) f, -n g, -amount h, +small k from o where abs(x) < 1000",
    "select length(name), trim(name), ltrim(name), rtrim(name), substring(name, 2, 2), left(name, 2) l, right(name, 1) r, replace(name, 'a', 'ZZ'), name || '!' , concat(name, 'x', name), startswith(name, 'a'), endswith(name, 'c'), contains(name, 'b'), name like 'a%' a, name like '_%' b, name like '%!%' escape '!' c, name not like 'a' d from o",
    "select upper(name), lower(name) from o where name in ('a', 'B', 'abc_%')",
    "select n / 2, n / small a, small / 4.0 b, amount / 3, amount / price c, 7 div 2, n div 3, -7 % 3, n % 5, small + 1, small * 2L, amount + 1, amount - price, amount * price, price * 2, small + amount, x + 1, x * amount d, 1 - amount, amount + 0.5, n + 1 e from o where small <> 0 and small < 100 and price <> 0 and amount < 1000 and n > -100",
    "select (n > 1) and flag, n > 1 or flag, not flag, n = small, n <> small, amount < price, x > 1, x = x a, name < 'b', n <=> small, n is null, n is not null, flag is true b, 1 in (1, 2), amount > 1, x >= amount from o",
    "select nested.a, nested.b.c, o.nested.a as z, figures['k'], size(tags), get(tags, 0) g, tags[0] t, cardinality(figures) from o where size(tags) > 0",
    "select nested.a + 1, abs(o.nested.a), (nested.b.c), length(nested.b.c), count(nested.a) over (order by id) w, nested.a is null, floor(amount), ceil(price) from o",
    "select * from (select nested.a from o) where a > 0 order by a",
    "select tags, figures, nested, x, flag from o",
    "select name, count(*) c from o group by all order by c, name",
    "select upper('x') u, count(*) c from o group by u",
    "select count_if(n > 1) a, bool_and(flag) b, some(flag) c, sum(distinct small % 3) d, sum(amount) filter (where n > 0) e, stddev(small % 100) f, var_pop(price) g, count(distinct day) from o where small < 1000",
    "select sum(amount) as amount, name from o group by name order by amount, name limit 3 offset 1",
    "select name k from o order by length(k), k, n limit 5",
    "select * except (tags, figures, nested) from o order by n desc, x, day, small, name limit 7",
    "select id, x from o where -x > 2.5e0",
    "select id, x > 5 a, abs(x) > 1e301 b, x <> 0.5e0 c, x >= 1e300 d, x <= 3 e, 1 - x > 2.5e0 f, -(-x) > 5 g from o where day = '2011-01-01'",
    "select id, x from o where x > 5 and day <> '2011-01-01' union all select 0, 1e0",
    "select id, x from o where abs(x) > 5 and x > 1e300",
    "select 1, 'a', true, null is null n, 1.10, 12345678901, 1e3 d, -1, 99999999999999999999 big, 0.01, 007 z, .5 h",
    "select -2147483648, -9223372036854775808, -2147483649, -9223372036854775809, -0.5, - 0.5, -.5, -0, -0.0, 5., 0.0000001",
    "select round(0) / price a, price * round(7, 1) b, 0 / price c from o where price <> 0",
    "select -(5), - -5, -007, amount * -0.5, price / -3, small - -2147483648, -2147483648 div 2 from o where small < 0",
    "select id, small from o order by (2) desc nulls last, ((1)) limit 7",
    "select small, count(*) c from o group by (1) order by (c) desc, (small)",
    "select o.name as a from o where length(name) = 1",
    "select day, max(amount) m from o group by 1 having m > 1 and max(n) > 0 order by 1 nulls last",
    "select name from (select name, row_number() over (partition by name order by n, x, day) r from o) where r = 1",
    "select sum(case when flag then amount else 0 end) a, sum(case when flag then 1 else 0 end) b, avg(case when flag then 1.0 else 0.0 end) c from o",
]  # fmt: skip

# What both engines must say the same of whatever is put in: by type, forms over expressions of given types.
COLUMNS = {
    "int": ["small", "n % 100", "nested.a", "7", "-3", "0", "length(name)"],
    "decimal": ["amount", "price", "1.5", "-0.001", "cast(small % 100 as decimal(5,1))"],
    "double": ["x", "cast(amount as double)", "2.5e0"],
    "string": ["name", "'a'", "''", "tags[0]", "nested.b.c", "'O''Neil %_'"],
    "date": ["day", "date'2011-01-01'", "cast(at as date)", "date'1900-02-28'"],
    "time": ["at", "timestamp'2011-03-06 00:00:00'", "cast(day as timestamp)"],
    "bool": ["flag", "true", "name is null"],
}
FORMS = {
    "int": [
        "{int} + {int}", "{int} - {int}", "{int} * {int}", "{int} div {int}", "{int} % {int}", "abs({int})", "- {int}",
        "coalesce({int}, {int})", "case when {bool} then {int} else {int} end", "if({bool}, {int}, {int})", "year({date})",
        "month({time})", "dayofweek({date})", "weekofyear({date})", "datediff({date}, {time})", "hour({time})",
        "second({time})", "cast({decimal} as int)", "greatest({int}, {int})", "nullif({int}, {int})", "length({string})",
        "cast({double} as bigint)", "extract(quarter from {date})", "size(tags)",
    ],
    "decimal": [
        "{decimal} + {decimal}", "{decimal} - {int}", "{decimal} * {decimal}", "{decimal} / {int}", "{decimal} / {decimal}",
        "round({decimal}, 1)", "round({decimal})", "cast({int} as decimal(12,3))", "cast({decimal} as decimal(14,1))",
        "coalesce({decimal}, {int})", "abs({decimal})", "ceil({decimal})", "floor({decimal})", "least({decimal}, {decimal})",
        "case when {bool} then {decimal} else 0 end", "cast({double} as decimal(30,6))", "- {decimal}",
    ],
    "double": [
        "{int} / {int}", "{double} + {int}", "{double} * {decimal}", "{double} - {double}", "{double} / {int}",
        "cast({decimal} as double)", "round({double}, 2)", "cast({int} as double)", "- {double}", "abs({double})",
        "coalesce({double}, {int})",
    ],
    "string": [
        "{string} || {string}", "concat({string}, {string})", "trim({string})", "substring({string}, 2, 3)",
        "left({string}, 1)", "right({string}, 2)", "upper({string})", "lower({string})", "replace({string}, 'a', 'ÄÖ')",
        "cast({int} as string)", "cast({decimal} as string)", "cast({date} as string)", "cast({time} as string)",
        "cast({bool} as string)", "coalesce({string}, {string})", "date_format({date}, 'dd.MM.yyyy')", "nvl({string}, 'none')",
    ],
    "date": [
        "date_add({date}, {int} % 1000)", "date_sub({date}, 3)", "last_day({date})", "trunc({date}, 'quarter')",
        "{date} + interval 2 month", "{date} - interval 1 year", "add_months({date}, 13)", "cast({time} as date)",
        "{date} - 1", "greatest({date}, {date})", "cast(cast({date} as string) as date)",
    ],
    "time": [
        "date_trunc('month', {time})", "date_trunc('HOUR', {time})", "date_trunc('week', {date})", "{time} + interval 90 minute",
        "{time} - interval 1 day", "cast({date} as timestamp)", "coalesce({time}, {time})",
    ],
    "bool": [
        "{int} = {decimal}", "{decimal} < {double}", "{int} <> {int}", "{string} >= {string}", "{date} <= {time}",
        "{date} > '2011-01-01'", "{time} < '2011-01-01'", "{bool} and {bool}", "{bool} or {bool}", "not {bool}",
        "{int} between {int} and {int}", "{int} in (1, 2, {int})", "{string} in ('a', {string})", "{string} like 'a%'",
        "{string} like '_b%'", "{int} is null", "{double} <=> {double}", "{double} > {double}", "{string} <=> {string}",
        "{double} = {int}", "startswith({string}, 'a')", "contains({string}, {string})", "{bool} is true",
        "{int} not in (select small from p)", "{decimal} in (select rate from p where rate is not null)",
    ],
}  # fmt: skip
AGGREGATES = [
    "count({any})", "count(distinct {plain})", "sum({int})", "sum({decimal})", "avg({int})", "avg({decimal})", "min({any})",
    "max({any})", "sum({double})", "avg({double})", "count_if({bool})", "bool_or({bool})", "stddev_pop({int})",
    "sum({decimal}) filter (where {bool})", "sum({int}) / count(*)", "sum({decimal}) / sum({int})", "max({string})",
]  # fmt: skip
WINDOWS = [
    "sum({int}) over (partition by {plain} order by id rows between 2 preceding and 1 following)",
    "sum({decimal}) over (order by id)",
    "avg({decimal}) over (partition by {plain})",
    "row_number() over (partition by {plain} order by {any} desc, id)",
    "rank() over (order by {plain})",
    "dense_rank() over (partition by {bool} order by {any} nulls last)",
    "lag({any}) over (order by id)",
    "lead({plain}, 3) over (partition by {bool} order by id desc)",
    "count(*) over (partition by {plain})",
    "max({any}) over (order by id rows between unbounded preceding and current row)",
]
PLAIN = ("int", "decimal", "string", "date", "time", "bool")  # types that rows are grouped by
