"""What list pages share: how a filter or cursor that cannot be meant is refused."""

from django.http import HttpRequest, HttpResponse

from console.views.page import render_page


def refuse_filter(request: HttpRequest, reason: str, *, page: str, back: str) -> HttpResponse:
    """Answer 422 with what is wrong in the address and a link to the same list without it."""
    context = {"reason": reason, "page": page, "back": back}
    return render_page(request, "components/refused.html", context, status=422)
