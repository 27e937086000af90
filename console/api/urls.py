"""Every address of the API. tests/architecture/test_api_urls.py has a line for each."""

from django.urls import URLPattern, path
from drf_spectacular.views import SpectacularAPIView

from console.api import dead_letters, schema

__all__ = ["API_URLS", "schema"]  # `schema` is imported to be known to drf-spectacular

API_URLS: list[URLPattern] = [
    path("api/schema/", SpectacularAPIView.as_view(), name="api_schema"),
    path("api/v1/dead-letters/", dead_letters.DeadLetters.as_view(), name="api_dead_letters"),
    path("api/v1/dead-letters/<uuid:dead_letter_id>/", dead_letters.DeadLetter.as_view(), name="api_dead_letter"),
]
