"""What every template may use: the look, the environment's label, the navigation, the person's roles."""

from dataclasses import dataclass
from enum import StrEnum

from django.conf import settings
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from console.nav import list_nav
from console.permissions import group_names

LOOK_COOKIE = "look"


class Theme(StrEnum):
    """Light, dark, or what the system says."""

    AUTO = "auto"
    LIGHT = "light"
    DARK = "dark"


class Density(StrEnum):
    """How high rows and controls are."""

    DENSE = "dense"
    ROOMY = "roomy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The saved preference; the cookie holds `theme.density`."""

    theme: Theme = Theme.AUTO
    density: Density = Density.DENSE

    def as_cookie(self) -> str:
        """The cookie's value."""
        return f"{self.theme}.{self.density}"


def parse_look(theme: str, density: str) -> Look:
    """A look from two words; an unknown word gives the default."""
    return Look(
        theme=Theme(theme) if theme in list(Theme) else Theme.AUTO,
        density=Density(density) if density in list(Density) else Density.DENSE,
    )


def look_of(request: HttpRequest) -> Look:
    """The look that the browser's cookie asks for."""
    theme, _, density = request.COOKIES.get(LOOK_COOKIE, "").partition(".")
    return parse_look(theme, density)


def frame(request: HttpRequest) -> dict[str, object]:
    """Context of the frame. Navigation and roles are read only when a template shows them."""
    return {
        "look": look_of(request),
        "env_label": settings.SIGNALBOX_ENV_LABEL,
        "page_base": "partial.html" if is_live_refresh(request) else "base.html",
        "nav": SimpleLazyObject(lambda: list_nav(request)),
        "roles": SimpleLazyObject(lambda: _roles(request)),
    }


def is_live_refresh(request: HttpRequest) -> bool:
    """Whether only the panels are wanted: an htmx request that is not a restored page of the history."""
    return "HX-Request" in request.headers and "HX-History-Restore-Request" not in request.headers


def _roles(request: HttpRequest) -> str:
    return ", ".join(group_names(request.user)) or "no group" if request.user.is_authenticated else ""
