"""Replay: a recorded span again in virtual time, under other policies and settings, and what they would bring."""
