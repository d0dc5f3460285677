"""Queries that die are started again, and people are told of what goes wrong. Knows no Spark."""
