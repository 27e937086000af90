"""Every URL of the console. tests/architecture/test_urls.py has a line for each: add yours there."""

from django.contrib.auth.views import LogoutView
from django.urls import URLPattern, path

from console.views import auth, now

urlpatterns: list[URLPattern] = [
    path("", now.now, name="now"),
    path("permissions/", auth.permissions, name="permissions"),
    path("sign-in/", auth.SignIn.as_view(), name="login"),
    path("sign-out/", LogoutView.as_view(), name="logout"),
    path("look/", auth.look, name="look"),
]

handler403 = "console.views.errors.forbidden"
handler404 = "console.views.errors.not_found"
handler500 = "console.views.errors.failed"
