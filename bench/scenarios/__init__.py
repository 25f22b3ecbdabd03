"""The measurements, one module each: a `run` that returns figures."""
