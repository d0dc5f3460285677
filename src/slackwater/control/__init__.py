"""Steering a running application: routes of its endpoint, the command line that asks them, explanations in words."""
