import pytest
from django.core.exceptions import ImproperlyConfigured

from console.asgi import refuse_unset_secret


def test_the_web_server_refuses_to_start_without_a_secret_of_its_own(settings):
    settings.SECRET_KEY = settings.SECRET_KEY_UNSET
    with pytest.raises(ImproperlyConfigured, match="SECRET_KEY is not set"):
        refuse_unset_secret()


def test_any_other_secret_is_taken(settings):
    settings.SECRET_KEY = "a long random text"
    refuse_unset_secret()
