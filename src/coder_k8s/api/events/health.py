"""The events of the condition `Healthy`."""

from .event import Event

HEALTH_CHECK_FAILED = Event(
    "HealthCheckFailed",
    "Warning",
    "Two checks of Coder itself found an error; the message has its code.",
    "See the condition `Healthy`.",
)
HEALTH_CHECK_WARNING = Event(
    "HealthCheckWarning",
    "Warning",
    "Coder's health check reports a warning that it did not report before; one event for each code.",
    "See the condition `Healthy`. A code that is expected can be added to `spec.health.ignore`.",
)
HEALTH_CHECK_RECOVERED = Event("HealthCheckRecovered", "Normal", "Coder's health check finds no error any more.")

HEALTH_EVENTS = (HEALTH_CHECK_FAILED, HEALTH_CHECK_WARNING, HEALTH_CHECK_RECOVERED)
