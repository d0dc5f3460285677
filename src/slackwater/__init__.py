"""Progress-aware scheduling for many Spark Structured Streaming queries.

    import slackwater
    slackwater.attach(spark)

Every query of the session is then scheduled by how soon its next watermark will sweep a window shut.
"""

from slackwater._version import __version__
from slackwater.core.model import Choice, Policy, QueryOptions, QueryView, Snapshot
from slackwater.drivers.spark.attach import attach
from slackwater.drivers.spark.doctor import Finding, doctor
from slackwater.drivers.spark.handle import Handle, QueryStatus, SchedulerStats
from slackwater.errors import AttachError, ConfigurationError, SlackwaterError
from slackwater.forwarding.settings import Forwarding, Peer
from slackwater.recording.recorder import Recording
from slackwater.supervision.settings import Alarms, Supervision

__all__ = [
    "Alarms",
    "AttachError",
    "Choice",
    "ConfigurationError",
    "Finding",
    "Forwarding",
    "Handle",
    "Peer",
    "Policy",
    "QueryOptions",
    "QueryStatus",
    "QueryView",
    "Recording",
    "SchedulerStats",
    "SlackwaterError",
    "Snapshot",
    "Supervision",
    "__version__",
    "attach",
    "doctor",
]
