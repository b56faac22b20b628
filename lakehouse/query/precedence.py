"""Where the parser binds parts of a condition in another order than Spark, if no parentheses say which."""

from __future__ import annotations

from sqlglot import exp

from lakehouse.query.sql_text import NotTranslatedError
from lakehouse.query.values import written

COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_PREDICATES = (exp.Is, exp.In, exp.Between, exp.Like, exp.Escape, exp.Not)


def check_order(node: exp.Expr) -> None:
    """Refuse a comparison or predicate with an operand that Spark would read otherwise.

    Spark's grammar (`valueExpression predicate?`) reads `a = b IN (c)` as `(a = b) IN (c)`, and `a = b < c` as
    `(a = b) < c`: all comparisons from left to right, then one predicate. The parser here takes `IN` and `<` first.

    Raises:
        NotTranslatedError: Spark decides what such a text means.
    """
    if isinstance(node, COMPARISONS):
        otherwise = isinstance(node.this, _PREDICATES) or isinstance(node.expression, (*_PREDICATES, *COMPARISONS))
    elif isinstance(node, (exp.Is, exp.In, exp.Between, exp.Like)):
        operands = (node.this, node.expression, node.args.get("low"), node.args.get("high"))
        otherwise = any(isinstance(each, (*_PREDICATES, *COMPARISONS)) for each in operands)
    else:
        return
    if otherwise:
        raise NotTranslatedError(f"{written(node)}, which has no parentheses")
