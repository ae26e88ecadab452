"""The router's command. Pure."""

from __future__ import annotations

from kit.router.model import Health

SCRIPT = "serve_router.py"
STARTUP_S = 1800


def router_arguments(host: str, port: int, metrics_port: int, health: Health) -> tuple[str, ...]:
    """Arguments of ``inside/serve_router.py``. No worker is given: only join adds one.

    A conversation goes where its cache is, until that node has more than two requests more than another: the router's own
    threshold is 64, and would leave one node idle beside another that decodes 16 streams at a third of its speed.
    """
    return (
        *("--host", host, "--port", str(port), "--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics_port)),
        *(
            "--policy",
            "cache_aware",
            "--balance-abs-threshold",
            "2",
            "--balance-rel-threshold",
            "1.5",
            "--health-check-endpoint",
            health.endpoint,
        ),
        *("--health-check-interval-secs", str(health.interval_s), "--health-check-timeout-secs", str(health.timeout_s)),
        *("--health-failure-threshold", str(health.failures), "--health-success-threshold", str(health.successes)),
        *("--worker-startup-timeout-secs", str(STARTUP_S), "--worker-startup-check-interval", "1"),
    )
