"""Kafka on this machine: the jars that a broker and Spark's Kafka source need, and a broker to try things with."""

from slackwater.kafka.broker import Broker
from slackwater.kafka.model import BrokerPlan, BrokerStatus

__all__ = ["Broker", "BrokerPlan", "BrokerStatus"]
