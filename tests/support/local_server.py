"""A server on a free local port that responds with a method."""

import json
import logging
import socket

from pytest_httpserver.httpserver import HTTPServerBase
from werkzeug import Response
from werkzeug.exceptions import HTTPException

logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it logs every request


class LocalServer(HTTPServerBase):
    """Listen while the context is open; raise errors of `dispatch` at its end."""

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
        except HTTPException:  # a response
            raise
        except Exception as error:
            self.handler_errors.append(error)
            raise

    def __exit__(self, *error):
        super().__exit__(*error)
        self.check()


def json_response(value, status=200, headers=None):
    """Make a JSON response.

    Args:
        value: Content.
        status: HTTP status.
        headers: Headers.

    Returns:
        The response.
    """
    return Response(json.dumps(value), status, headers, content_type="application/json")


def drop_connection(request):
    """Close the connection without a response."""
    request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    return Response()
