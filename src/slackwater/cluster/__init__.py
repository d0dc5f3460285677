"""A Spark standalone cluster on this machine, from the jars that the pyspark package brings."""

from slackwater.cluster.model import ClusterPlan, ClusterStatus, WorkerStatus
from slackwater.cluster.standalone import Standalone

__all__ = ["ClusterPlan", "ClusterStatus", "Standalone", "WorkerStatus"]
