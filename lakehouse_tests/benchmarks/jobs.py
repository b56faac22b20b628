"""How much an engine in the same process was asked to do."""

from pyspark.sql import SparkSession


def spark_jobs(spark: SparkSession) -> int:
    """Jobs that the session's context has started so far, Delta's own included."""
    # The public status tracker forgets old jobs and those of another job group; the scheduler's counter does neither.
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())
