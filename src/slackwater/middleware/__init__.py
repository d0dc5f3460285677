"""Schedules several applications on a host: reads their metrics, orders them, lets the operating system enforce it."""
