"""Whether the console's first page can be used."""

from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

REDIRECTS = 3
TIMEOUT_S = 5


def is_page_ready(port: int) -> bool:
    """Tell whether `/` ends, after its redirects (to the login page), with 200."""
    path = "/"
    for _ in range(REDIRECTS):
        try:
            status, location = _get(port, path)
        except (OSError, HTTPException):
            return False
        if status not in {301, 302, 303, 307, 308}:
            return status == 200
        target = urlsplit(location)
        path = f"{target.path}?{target.query}" if target.query else target.path
    return False


def _get(port: int, path: str) -> tuple[int, str]:
    # No proxy: this is our own process on loopback, whatever HTTP_PROXY says.
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Location", "")
    finally:
        connection.close()
