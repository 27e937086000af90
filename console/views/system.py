"""The System page: what runs, what it runs on, and the repeated jobs."""

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.dependencies import check_dependencies, list_versions
from console.faults import Fault, read_or_fault
from console.permissions import Action
from console.views.page import permitted, render_page
from console.words import count_words, join_words
from relay.facade import list_processes, list_sweeps, product_version
from relay.types import Aspect, ProcessView


@require_safe
@permitted(Action.VIEW)
def system(request: HttpRequest) -> HttpResponse:
    """Show processes by their heartbeats, connections, versions and sweeps."""
    processes = read_or_fault("The processes could not be read", list_processes)
    dependencies = read_or_fault("The connections could not be checked", check_dependencies)
    context = {
        "as_of": timezone.now(),
        "lead": _lead(processes),
        "processes": processes,
        "dependencies": dependencies,
        "versions": [("Signalbox", product_version()), *list_versions()],
        "sweeps": read_or_fault("The repeated jobs could not be read", list_sweeps),
    }
    return render_page(request, "system/system.html", context)


def _lead(processes: list[ProcessView] | Fault) -> str:
    if isinstance(processes, Fault):
        return "The processes could not be read."
    if not processes:
        return "No process has beaten yet. Start them with `make up`."
    alive = [p for p in processes if p.verdict.aspect in (Aspect.OK, Aspect.WARN)]
    lost = [p.name for p in processes if p.verdict.aspect is Aspect.BAD]
    words = f"{count_words(len(alive), 'process is', 'processes are')} alive."
    return f"{join_words(lost[:3])} {'is' if len(lost) == 1 else 'are'} lost. {words}" if lost else words
