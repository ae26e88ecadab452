"""sglang-router's control interface. Edge. ``202`` means queued, no more: everything is read back.

Raises KitError(UNREACHABLE) when a router does not answer, KitError(TIMEOUT) when what was asked did not come about.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from kit.errors import ExitCode, KitError, failure
from kit.router.model import Worker, worker

POLL_S = 0.1


class RouterClient:
    """One router. Use as a context manager."""

    def __init__(self, name: str, url: str, key: str | None = None, timeout_s: float = 10.0) -> None:
        self.name, self.url = name, url
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_s, trust_env=False)

    def __enter__(self) -> RouterClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def _ask(self, method: str, path: str, body: Any = None, accepted: Sequence[int] = (200, 202)) -> httpx.Response:
        where = f"router {self.name} {method} {path}"
        try:
            response = self._http.request(method, path, json=body)
        except httpx.HTTPError as error:
            step = "is its unit up? is the address in routers.yml right?"
            raise KitError(failure("router.unreachable", where, "an answer", str(error), step), ExitCode.UNREACHABLE) from None
        if response.status_code not in accepted:
            found = f"{response.status_code} {response.text[:200]}"
            step = "is its key right?" if response.status_code in (401, 403) else "see the router's log"
            raise KitError(failure("router.refused", where, " or ".join(map(str, accepted)), found, step), ExitCode.UNREACHABLE)
        return response

    def workers(self) -> tuple[Worker, ...]:
        """All that it lists."""
        answer = self._ask("GET", "/workers").json()
        return tuple(worker(one) for one in answer["workers"])

    def find(self, url: str) -> Worker | None:
        """The worker of a URL."""
        return next((one for one in self.workers() if one.url == url.rstrip("/")), None)

    def add(self, url: str, key: str | None, timeout_s: float, tell: Callable[[str], None] = lambda text: None) -> Worker:
        """Add and wait until it is listed and healthy. The engine's key travels in the body, over the control connection."""
        began = time.monotonic()
        self._ask("POST", "/workers", {"url": url, **({"api_key": key} if key else {})})
        return self._until(url, lambda found: found is not None and found.healthy, "listed and healthy", began + timeout_s, tell)  # type: ignore[return-value]

    def remove(self, url: str, timeout_s: float = 10.0) -> None:
        """Take it off the list, and see that it is off. Streams that run go on. Nothing to do when it is not listed."""
        found = self.find(url)
        if found is None:
            return
        began = time.monotonic()
        self._ask("DELETE", f"/workers/{found.id}", accepted=(200, 202, 204, 404))
        self._until(url, lambda now: now is None, "off the list", began + timeout_s, lambda text: None)

    def _until(
        self, url: str, good: Callable[[Worker | None], bool], what: str, deadline: float, tell: Callable[[str], None]
    ) -> Worker | None:
        said = ""
        while True:
            found = self.find(url)
            if good(found):
                return found
            state = (
                "not listed"
                if found is None
                else f"listed, {'healthy' if found.healthy else 'unhealthy'} {found.status or ''}".strip()
            )
            if state != said:
                tell(f"{self.name}: {url} is {state}")
                said = state
            if time.monotonic() >= deadline:
                step = "202 only queues: see the router's log"
                raise KitError(failure("router.pending", f"router {self.name} {url}", what, state, step), ExitCode.TIMEOUT)
            time.sleep(POLL_S)

    def ready(self) -> bool:
        """Whether it would serve a request at all. /health says OK whatever happens."""
        return self._ask("GET", "/readiness", accepted=(200, 503)).status_code == 200
