"""Spark's functions that are not of one row, by the names that they have in a plan."""

from __future__ import annotations

AGGREGATES = frozenset(
    {
        "any_value", "approx_count_distinct", "approx_percentile", "array_agg", "avg", "bit_and", "bit_or",
        "bit_xor", "bitmap_and_agg", "bitmap_construct_agg", "bitmap_or_agg", "bool_and", "bool_or",
        "collect_list", "collect_set", "corr", "count", "count_if", "count_min_sketch", "covar_pop", "covar_samp",
        "every", "first", "first_value", "grouping", "grouping_id", "histogram_numeric", "hll_sketch_agg",
        "hll_union_agg", "kll_merge_agg_bigint", "kll_merge_agg_double", "kll_merge_agg_float",
        "kll_sketch_agg_bigint", "kll_sketch_agg_double", "kll_sketch_agg_float", "kurtosis", "last",
        "last_value", "listagg", "max", "max_by", "mean", "median", "min", "min_by", "mode", "percentile",
        "percentile_approx", "product", "regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2",
        "regr_slope", "regr_sxx", "regr_sxy", "regr_syy", "schema_of_variant_agg", "skewness", "some", "std",
        "stddev", "stddev_pop", "stddev_samp", "string_agg", "sum", "theta_intersection_agg", "theta_sketch_agg",
        "theta_union_agg", "try_avg", "try_sum", "tuple_intersection_agg_double",
        "tuple_intersection_agg_integer", "tuple_sketch_agg_double", "tuple_sketch_agg_integer",
        "tuple_union_agg_double", "tuple_union_agg_integer", "var_pop", "var_samp", "variance",
    }
)  # fmt: skip
"""They put many rows together. A test compares them with those of the installed Spark."""

GENERATORS = frozenset(
    {
        "explode", "explode_outer", "inline", "inline_outer", "json_tuple", "posexplode", "posexplode_outer",
        "stack", "variant_explode", "variant_explode_outer",
    }
)  # fmt: skip
"""They make several rows of one."""

WINDOWED = frozenset(
    {
        "cume_dist", "dense_rank", "lag", "lead", "nth_value", "ntile", "percent_rank", "rank", "row_number",
    }
)  # fmt: skip
"""They stand in a window only."""

UNSTEADY = frozenset(
    {
        "curdate", "current_date", "current_time", "current_timestamp", "localtimestamp", "monotonically_increasing_id",
        "now", "rand", "randn", "random", "randstr", "shuffle", "spark_partition_id", "uniform", "uuid",
    }
)  # fmt: skip
"""They give other values each time, so that a day that is built again would have other rows."""

KINDS = {
    "sum": "sum", "try_sum": "sum", "count": "sum", "count_if": "sum", "max": "max", "min": "min", "some": "or",
    "bool_or": "or", "every": "and", "bool_and": "and",
}  # fmt: skip
"""What an aggregate's results are put together by: counts by a sum."""

AGAIN = {"sum": "sum", "try_sum": "sum", "max": "max", "min": "min", "some": "or", "bool_or": "or", "every": "and",
         "bool_and": "and"}  # fmt: skip
"""For these it makes no difference in which groups an argument of the kind was computed before."""

PICKS = frozenset(
    {
        "any_value", "first", "first_value", "last", "last_value", "max", "max_by", "min", "min_by",
    }
)  # fmt: skip
"""Aggregates whose result is one of the values, whole."""

BY_ORDER = frozenset(
    {
        "any_value", "array_agg", "collect_list", "first", "first_value", "last", "last_value", "listagg",
        "string_agg",
    }
)  # fmt: skip
"""Aggregates that look at the order of the rows."""

ROW_WISE = frozenset({100, 101, 200, 204, 250, 251})
"""Numbers of the kinds of Python functions that take and give single rows, or batches of them: `PythonEvalType`."""

CHOICES = frozenset({"coalesce", "ifnull", "nvl"})
NULLNESS = frozenset({"isnull", "isnotnull"})
