"""Kafka on this machine: the jars that a broker and Spark's Kafka source need, and a broker to try things with."""

from slackwater.kafka.broker import Broker
from slackwater.kafka.ingestion import tell_delays
from slackwater.kafka.model import BrokerPlan, BrokerStatus
from slackwater.kafka.screen import Screen, from_millis, rejects

__all__ = ["Broker", "BrokerPlan", "BrokerStatus", "Screen", "from_millis", "rejects", "tell_delays"]
