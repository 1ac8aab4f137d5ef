"""`/health/live`, `/health/ready` and `/metrics`: for orchestrators and monitoring, without login."""

from __future__ import annotations

from collections.abc import Iterable

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest

from config import checks
from config.base.redis import RedisUnavailable
from guard.admission.counting import AdmissionCollector
from memory.profiles.answers.services import lookups


@require_safe
@never_cache
def live(request: HttpRequest) -> HttpResponse:
    """The process runs and answers. It asks nothing of others: a restart mends no database."""
    return HttpResponse("ok", content_type="text/plain")


@require_safe
@never_cache
def ready(request: HttpRequest) -> HttpResponse:
    """200 when every check passes, else 503 with the reasons by name."""
    results = checks.readiness()
    failed = [result for result in results if not result.ok]
    body = {
        "status": "not_ready" if failed else "ready",
        "reasons": [f"{result.name}: {result.detail}" for result in failed],
        # Fit to serve, and somebody has to look.
        "warnings": [f"{result.name}: {result.detail}" for result in results if result.warning],
        "checks": {result.name: _shown(result) for result in results},
    }
    response = JsonResponse(body, status=503 if failed else 200)
    response._has_been_logged = True  # type: ignore[attr-defined]  # Django would log each 503 as an error of ours
    return response


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus text. What cannot be measured now is absent, which is not the same as 0."""
    return HttpResponse(generate_latest(_registry(checks.readiness())), content_type=CONTENT_TYPE_LATEST)


def _shown(result: checks.Result) -> dict[str, object]:
    shown: dict[str, object] = {"ok": result.ok, "detail": result.detail}
    if result.value is not None:
        shown["seconds"] = round(result.value, 3)
    return shown


GAUGES = {
    "audit_seal_lag_seconds": "Age of the oldest audit row that no seal holds yet",
    "audit_unsealed_rows": "Audit rows that no seal holds yet",
    "outbox_set_aside_rows": "Alert events that were not sent because their rows are damaged",
    "rule_versions_damaged": "Versions of rules whose stored figures cannot be read: they judge nothing",
    "alert_rows_damaged": "Stored alerts and findings that cannot be read: their customers are not judged",
    "notifications_waiting": "Messages to the outside that wait or are being sent",
    "notifications_late_seconds": "How long the oldest message that may go has waited for a worker",
    "notifications_unread_events": "Alert events that no notification was looked for yet",
    "notifications_failed": "Messages that were given up in the last day",
    "notifications_unknown": "Messages of the last day of which it is not known whether they arrived",
    "audit_lost_observations": "Observations that could not be written to the audit log, in the last 7 days",
}


def _registry(results: Iterable[checks.Result]) -> CollectorRegistry:
    registry = CollectorRegistry()
    passed = Gauge("xinghuo_check_ok", "1 when the readiness check passes", ["check"], registry=registry)
    lags = {
        "worker_lag": "Age of the oldest message that is not in the database yet",
        "outbox_lag": "Age of the oldest alert event that is not sent yet",
        "core_round": "How long ago the last finished round over an external core's customers began",
    }
    for result in results:
        passed.labels(result.name).set(1 if result.ok else 0)
        if result.name in lags and result.value is not None:
            Gauge(f"xinghuo_{result.name}_seconds", lags[result.name], registry=registry).set(result.value)
        for name, value in result.gauges.items():
            Gauge(f"xinghuo_{name}", GAUGES[name], registry=registry).set(value)
    registry.register(AdmissionCollector())
    _add_answer_lookups(registry)
    return registry


def _add_answer_lookups(registry: CollectorRegistry) -> None:
    try:
        table = lookups()
    except RedisUnavailable:
        return
    counted = Gauge(
        "xinghuo_answer_cache_lookups",
        "Lookups of the answer cache since its Redis last lost them: hit, miss, wait (another was making it)",
        ["tenant", "agent", "result"],
        registry=registry,
    )
    for (tenant, agent), counts in table.items():
        for result, count in counts.items():
            counted.labels(tenant, agent, result).set(count)
