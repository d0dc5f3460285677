"""Settings from a file, the environment, Spark's configuration and arguments, in one order of precedence."""
