"""Django: the first request of each worker process opens servers, once.

Run it with ``python django_site.py runserver``, or with ``gunicorn django_site:application --threads 8``. In a project
of several files, the class and its object belong into a module that the views import.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from threading import Lock

from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

from mcp_actors import ServerConfig, ServerError, Stdio
from mcp_actors.sync import SyncServerGroup, open_servers

TIME = ServerConfig("time", Stdio("mcp-server-time"))

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"], DEBUG=True)


class Servers:
    """The servers of this process, which the first thread that needs them opens.

    `AppConfig.ready` is not the place: it also runs for each management command, and twice for ``runserver``.
    """

    def __init__(self) -> None:
        self._lock = Lock()  # fifty first requests at once open one group
        self._stack = ExitStack()
        self._group: SyncServerGroup | None = None

    def get(self) -> SyncServerGroup:
        with self._lock:
            if self._group is None:
                block = open_servers(TIME, drain_timeout=5)
                self._group = self._stack.enter_context(block)
            return self._group


servers = Servers()


def now(request: HttpRequest, zone: str) -> JsonResponse:
    try:
        time = servers.get()["time"].call("get_current_time", timezone=zone)
    except ServerError as error:  # the server is down, or slow
        return JsonResponse({"error": str(error)}, status=503)
    return JsonResponse(time)


urlpatterns = [path("now/<path:zone>", now)]
application = get_wsgi_application()

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
