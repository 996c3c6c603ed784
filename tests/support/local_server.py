"""A server on a free local port whose answers are a method's."""

import json
import logging
import socket

from pytest_httpserver.httpserver import HTTPServerBase
from werkzeug import Response
from werkzeug.exceptions import HTTPException

logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it says every request


class LocalServer(HTTPServerBase):
    """Listens while the context is open; what fails in `dispatch` fails at its end."""

    def __init__(self):
        super().__init__("127.0.0.1", 0, threaded=True)

    @property
    def url(self):
        return self.url_for("").rstrip("/")

    def thread_target(self):
        self.server.serve_forever(poll_interval=0.02)

    def application(self, request):
        try:
            return self.dispatch(request)
        except HTTPException:  # an answer
            raise
        except Exception as error:
            self.handler_errors.append(error)
            raise

    def __exit__(self, *error):
        super().__exit__(*error)
        self.check()


def json_response(value, status=200, headers=None):
    """Make an answer of JSON.

    Args:
        value: Content.
        status: HTTP status.
        headers: Headers.

    Returns:
        The answer.
    """
    return Response(json.dumps(value), status, headers, content_type="application/json")


def drop_connection(request):
    """In place of an answer: the connection ends without one."""
    request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    return Response()
