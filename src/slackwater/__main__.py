"""`python -m slackwater`."""

from slackwater.cli import main

main()
