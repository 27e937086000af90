"""Health for Compose and Kubernetes: /healthz (this process serves), /readyz (what it needs answers)."""

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from console.dependencies import check_dependencies
from relay.facade import product_version
from relay.types import Aspect

NEEDED = "PostgreSQL"


@login_not_required
@require_safe
def healthz(_request: HttpRequest) -> JsonResponse:
    """200 while the process serves requests; asks nothing else."""
    return JsonResponse({"status": "ok", "version": product_version()})


@login_not_required
@require_safe
def readyz(_request: HttpRequest) -> JsonResponse:
    """200 when PostgreSQL answers: pages work without Valkey and Kafka, and say so. Else 503."""
    found = check_dependencies()
    answers = {one.name.lower(): one.verdict.aspect is Aspect.OK for one in found}
    ready = answers[NEEDED.lower()]
    body = {
        "status": "ready" if ready else "not ready",
        "dependencies": {name: {"answers": ok, "needed": name == NEEDED.lower()} for name, ok in answers.items()},
    }
    response = JsonResponse(body, status=200 if ready else 503)
    response["Cache-Control"] = "no-store"
    return response
