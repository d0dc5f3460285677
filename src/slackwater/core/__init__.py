"""The scheduler's pure part: facts in, decisions out. No Spark, no OS, no clock, no I/O."""
