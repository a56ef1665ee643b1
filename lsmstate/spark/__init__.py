"""The join on Spark: the only part of lsmstate that imports pyspark."""

from lsmstate.spark.listener import EpochProgress, progress
from lsmstate.spark.plan import stream_join
from lsmstate.spark.ticker import tick

__all__ = ["EpochProgress", "progress", "stream_join", "tick"]
