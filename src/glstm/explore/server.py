"""The page on this machine alone: a server on the loopback address, with nothing but the page."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from glstm.errors import UserError

ADDRESS = "127.0.0.1"


def make_server(page: str, port: int = 0) -> ThreadingHTTPServer:
    """A server whose `server_port` is a free one, or the one asked for; the caller starts it."""
    content = page.encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A page elsewhere can have its own name stand for this address; then the browser says that name.
            host = (self.headers.get("Host") or "").rpartition(":")[0]
            if host not in (ADDRESS, "localhost") or self.path.partition("?")[0] != "/":
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody needs a line for each request."""

    try:
        server = ThreadingHTTPServer((ADDRESS, port), Handler)
    except (OSError, OverflowError) as error:
        raise UserError(f"--port {port} cannot be used: {getattr(error, 'strerror', None) or error}") from error
    server.daemon_threads = True
    return server
