"""A server on this machine that answers as much of W&B's protocol as a run needs.

It keeps the lines of each run's history where the client puts them, and can go silent.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HISTORY = "wandb-history.jsonl"


class Server(ThreadingHTTPServer):
    """`runs`: lines of the history by run; `silent`: every request is answered by an error."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.runs: dict[str, dict[int, dict[str, Any]]] = {}
        self.upserts: list[dict[str, Any]] = []
        self.silent = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def rows(self, run: str) -> list[dict[str, Any]]:
        """Rows of a run in their order."""
        return [row for _, row in sorted(self.runs.get(run, {}).items())]

    def stored(self, run: str, sent: dict[str, Any]) -> None:
        part = sent.get("files", {}).get(HISTORY)
        for at, line in enumerate(part["content"] if part else [], part["offset"] if part else 0):
            self.runs.setdefault(run, {})[at] = json.loads(line)

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        name = variables.get("name")
        if "viewer" in query:
            user = {"id": "u", "entity": "me", "username": "me", "flags": "{}"}
            return {"viewer": {**user, "teams": {"edges": []}}, "serverInfo": {"features": []}}
        if "RunResumeStatus" in query:
            found = self._bucket(name) if name in self.runs else None
            return {"model": {"id": "p", "name": "txlab", "bucket": found}}
        if "upsertBucket" in query:
            self.upserts.append(variables)
            return {"upsertBucket": {"bucket": self._bucket(name), "inserted": True}}
        if "createRunFiles" in query:
            files = [{"name": f, "uploadUrl": f"{self.url}/up/{f}"} for f in variables["files"]]
            return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}
        return {}

    def _bucket(self, name: Any) -> dict[str, Any]:
        rows = self.rows(str(name))
        tail = [json.dumps(row) for row in rows[-1:]]
        project = {"id": "p", "name": "txlab", "entity": {"id": "e", "name": "me"}}
        found = {"id": "b", "name": name, "displayName": name, "project": project}
        found |= {"historyLineCount": len(rows), "historyTail": json.dumps(tail)}
        found |= {"eventsLineCount": 0, "eventsTail": json.dumps(["{}"]), "logLineCount": 0}
        found |= {"summaryMetrics": tail[0] if tail else "{}", "config": "{}"}
        return {**found, "wandbConfig": json.dumps({"t": {"1": 1}})}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._reply({})

    def do_PUT(self) -> None:
        self._body()
        self._reply({})

    def do_POST(self) -> None:
        raw = self._body()
        if self.server.silent:
            self._reply({"error": "away"}, 503)
        elif self.path.endswith("/graphql"):
            asked = json.loads(raw)
            self._reply({"data": self.server.answer(asked["query"], asked.get("variables") or {})})
        elif self.path.endswith("/file_stream"):
            self.server.stored(self.path.split("/")[-2], json.loads(raw))
            self._reply({"exitcode": None, "limits": {}})
        else:
            self._reply({})

    def _body(self) -> bytes:
        if "chunked" not in (self.headers.get("Transfer-Encoding") or ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        whole = b""
        while size := int(self.rfile.readline(), 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return whole

    def _reply(self, answer: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving() -> Iterator[Server]:
    """The server, until the block ends."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
