"""Where the middleware's facts come from: one module for each kind of engine."""
