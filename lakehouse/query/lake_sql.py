"""The dialect in which queries are read and written again: Spark's, without what sqlglot would change in it."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokens import TokenType

_SIGNED = [TokenType.DASH, TokenType.NUMBER, TokenType.DCOLON]
_ENDINGS = {"L", "S", "Y", "F", "D", "BD"}  # of a number: to the parser `2L` is a cast, too


class LakeSql(Spark):
    """Spark's SQL, read and written without changing it: functions stay what they are called."""

    class Parser(SparkParser):
        """Functions are plain calls, except where their arguments have a grammar of their own."""

        FUNCTIONS = {}  # noqa: RUF012  # as the base class has it
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: parse
            for name, parse in SparkParser.FUNCTION_PARSERS.items()
            if name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION", "SUBSTRING", "SUBSTR", "OVERLAY")
        }
        ARRAY_CONSTRUCTORS = {}  # noqa: RUF012  # `array(1, 2)[1]` is a call and an index
        JOINS_HAVE_EQUAL_PRECEDENCE = False  # `a, b RIGHT JOIN c` joins b with c first

        def _parse_interval(  # type: ignore[override]  # what it makes is taken as any term
            self, require_interval: bool = True, parse_function_unit: bool = True
        ) -> exp.Expr | None:
            """`- INTERVAL 1 DAY 2 HOURS` takes both away: the base class reads a bare sum, and takes the day alone."""
            found = super()._parse_interval(require_interval, parse_function_unit)
            return exp.Paren(this=found) if require_interval and isinstance(found, exp.Add) else found

        def _parse_unary(self) -> exp.Expr | None:
            """`-2::STRING` is the text of minus two: to Spark a sign belongs to its number before a cast does."""
            ahead = self._tokens[self._index : self._index + 5]
            if [each.token_type for each in ahead[:3]] != _SIGNED:
                return super()._parse_unary()
            if ahead[3:] and ahead[3].text.upper() in _ENDINGS:
                if ahead[4:] and ahead[4].token_type == TokenType.DCOLON:
                    self.raise_error("To cast a number with a sign and an ending, write it in parentheses", ahead[4])
                return super()._parse_unary()
            self._advance()
            return self._parse_column_ops(exp.Paren(this=exp.Neg(this=self._parse_primary())))

    class Generator(SparkGenerator):
        """Spark's words where the base class has others."""

        TABLESAMPLE_SEED_KEYWORD = "REPEATABLE"
        # The base class takes a time of day for a moment, which is one of today.
        TYPE_MAPPING = {**SparkGenerator.TYPE_MAPPING, exp.DataType.Type.TIME: "TIME"}  # noqa: RUF012
        EXPRESSIONS_WITHOUT_NESTED_CTES = set()  # noqa: RUF012  # at the top, an inner WITH would hide an outer's name
