"""A Dagster + PySpark lakehouse: every table is a contract, a pure transform and a partitioned asset."""
