"""Sign in, sign out, the look, and what the signed-in person may do."""

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_POST, require_safe

from console import throttle
from console.context import LOOK_COOKIE, parse_look
from console.permissions import GRANTS, Denied, group_names, may
from console.views.page import render_page, safe_next

LOOK_COOKIE_AGE_S = 400 * 86_400


class SignInForm(AuthenticationForm):
    """Name and password; after too many failures it says how long to wait, and checks nothing."""

    error_messages = {
        "invalid_login": "The name and the password do not belong together. Both are case-sensitive.",
        "inactive": "This account is switched off. An admin can switch it on.",
    }

    def clean(self) -> dict[str, object]:
        """Check the throttle, then the password; count what failed."""
        name = str(self.cleaned_data.get("username") or "")
        address = self.request.META.get("REMOTE_ADDR", "") if self.request else ""
        wait_s = throttle.wait_s(name, address)
        if wait_s:
            raise ValidationError(throttle.words(wait_s), code="throttled")
        try:
            cleaned: dict[str, object] = super().clean()
        except ValidationError:
            throttle.record_failure(name, address)
            raise
        throttle.forget(name, address)
        return cleaned


@method_decorator(login_not_required, name="dispatch")
class SignIn(LoginView):
    """Django's sign-in with our form; a failed one answers 422, a throttled one 429."""

    form_class = SignInForm
    redirect_authenticated_user = True

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        """Show the form again with what was wrong."""
        response = super().form_invalid(form)
        response.status_code = 429 if form.has_error("__all__", "throttled") else 422
        return response


@login_not_required
@require_POST
def look(request: HttpRequest) -> HttpResponse:
    """Keep the theme and the density in a cookie, and go back to where the person was."""
    wanted = parse_look(request.POST.get("theme", ""), request.POST.get("density", ""))
    is_in_background = "HX-Request" in request.headers
    response = HttpResponse(status=204) if is_in_background else HttpResponseRedirect(safe_next(request))
    response.set_cookie(
        LOOK_COOKIE,
        wanted.as_cookie(),
        max_age=LOOK_COOKIE_AGE_S,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
    return response


@require_safe
def permissions(request: HttpRequest) -> HttpResponse:
    """List every action with yes or no and why; open to everyone who is signed in."""
    rows = [(grant, may(request.user, grant.action)) for grant in GRANTS]
    names = group_names(request.user) if request.user.is_authenticated else []
    context = {"rows": rows, "groups": names, "allowed": sum(not isinstance(d, Denied) for _, d in rows)}
    return render_page(request, "registration/permissions.html", context)
