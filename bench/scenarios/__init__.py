"""The measurements, one module each: a `run` that yields figures."""
