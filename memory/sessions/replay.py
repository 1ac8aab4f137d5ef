"""Replays recorded conversations through the HTTP API, as agents would have held them.

Ids come from the file's name and the dialogue's id, so a second run (or a retry) doubles nothing.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx

from config.base.ids import ID_PATTERN
from memory.sessions.entries import ROLES

TURN = 2  # messages appended at once: what a user said and what was answered


class Refused(Exception):
    """The server will not take a dialogue, however often it is asked."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    line: int
    dialogue_id: str
    messages: list[dict[str, str]]
    session_id: str
    actor_id: str


@dataclass(frozen=True, slots=True)
class BadLine:
    line: int
    reason: str


@dataclass
class Report:
    """Times are seconds. `latencies`: one an append, from the first try to the answer."""

    dialogues: int = 0
    messages: int = 0
    retries: int = 0
    bad: list[BadLine] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    lags: list[float] = field(default_factory=list)


def names_of(source: str, dialogue_id: str) -> tuple[str, str]:
    """Session and actor of a dialogue: the same for the same file name and dialogue id, every time."""
    digest = hashlib.sha256(f"{source}\0{dialogue_id}".encode()).hexdigest()
    readable = dialogue_id if ID_PATTERN.match(dialogue_id) and len(dialogue_id) <= 32 else "x"
    return f"dlg-{readable}-{digest[:16]}", f"cust-{readable}-{digest[:8]}"


def read_dialogues(lines: Iterable[bytes], source: str) -> Iterator[Dialogue | BadLine]:
    """One dialogue a line: `{"dialogue_id", "messages": [{"role", "content"}, ...]}`. Blank lines are passed over."""
    seen: dict[str, int] = {}
    for number, raw in enumerate(lines, start=1):
        if not raw.strip():
            continue
        try:
            value = json.loads(raw.decode("utf-8-sig" if number == 1 else "utf-8"))
            messages = _messages(value)
            dialogue_id = value.get("dialogue_id")
            if not isinstance(dialogue_id, str | int) or isinstance(dialogue_id, bool) or dialogue_id == "":
                raise ValueError("dialogue_id is missing or is neither text nor a number")
            dialogue_id = str(dialogue_id)
            dialogue_id.encode()
            if dialogue_id in seen:
                raise ValueError(f"dialogue_id {dialogue_id[:40]!r} was on line {seen[dialogue_id]} already")
        except UnicodeDecodeError as error:
            yield BadLine(number, f"not UTF-8 at byte {error.start}")
        except UnicodeEncodeError:
            yield BadLine(number, "holds half of a surrogate pair, which is no text")
        except json.JSONDecodeError as error:
            yield BadLine(number, f"not JSON: {error.msg} at column {error.colno}")
        except RecursionError:
            yield BadLine(number, "nested too deeply")
        except ValueError as error:
            yield BadLine(number, str(error))
        else:
            seen[dialogue_id] = number
            session_id, actor_id = names_of(source, dialogue_id)
            yield Dialogue(number, dialogue_id, messages, session_id, actor_id)


def _messages(value: Any) -> list[dict[str, str]]:
    if not isinstance(value, dict):
        raise ValueError(f"a {type(value).__name__}, not an object")
    messages = value.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages is missing, empty or no list")
    for n, message in enumerate(messages):
        if not isinstance(message, dict):
            raise ValueError(f"messages.{n} is no object")
        if message.get("role") not in ROLES:
            raise ValueError(f"messages.{n}.role is not one of {', '.join(sorted(ROLES))}")
        if not isinstance(message.get("content"), str):
            raise ValueError(f"messages.{n}.content is missing or no text")
        message["content"].encode()
    return [{"role": message["role"], "content": message["content"]} for message in messages]


class Replayer:
    """url: where the API is, without /api. patience: seconds that one request is tried again for, while the server
    is away or answers 5xx."""

    def __init__(self, *, url: str, key: str, durability: str, patience: float = 120.0, actor: str = "") -> None:
        self._client = httpx.Client(
            base_url=f"{url.rstrip('/')}/api/v1",
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(30.0, connect=5.0),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=100),
        )
        self._durability = durability
        self._patience = patience
        self._actor = actor
        self._lock = threading.Lock()
        self.report = Report()
        self.newest: tuple[str, int, float] | None = None  # session, number, when acknowledged
        self._stopped = threading.Event()

    def close(self) -> None:
        self._client.close()

    def stop(self) -> None:
        """Ends the run after the requests under way."""
        self._stopped.set()

    def _request(self, path: str, body: dict[str, Any], actor: str) -> dict[str, Any]:
        deadline = time.monotonic() + self._patience
        pause = 0.05
        while True:
            try:
                response = self._client.post(path, json=body, headers={"X-Actor-Id": actor})
                if response.status_code < 500 and response.status_code != 429:
                    break
                what = f"HTTP {response.status_code}"
            except httpx.TransportError as error:
                what = type(error).__name__
            if self._stopped.is_set() or time.monotonic() > deadline:
                raise Refused(f"given up after {self._patience:.0f} s: {what}")
            with self._lock:
                self.report.retries += 1
            time.sleep(pause)
            pause = min(pause * 2, 2.0)
        if response.status_code >= 400:
            try:
                problem = response.json()
            except ValueError:
                problem = {}
            raise Refused(f"{response.status_code} {problem.get('code', '')}: {problem.get('detail', '')}".strip(": "))
        answer: dict[str, Any] = response.json()
        return answer

    def replay(self, dialogue: Dialogue, progress: Callable[[int], Any]) -> None:
        """One conversation, turn by turn, in order. Errors: Refused."""
        actor = self._actor or dialogue.actor_id
        self._request("/sessions", {"session_id": dialogue.session_id}, actor)
        for start in range(0, len(dialogue.messages), TURN):
            turn = [
                {**message, "entry_id": f"m{start + n + 1:05d}"}
                for n, message in enumerate(dialogue.messages[start : start + TURN])
            ]
            began = time.monotonic()
            answer = self._request(
                f"/sessions/{dialogue.session_id}/messages",
                {"messages": turn, "durability": self._durability},
                actor,
            )
            ended = time.monotonic()
            with self._lock:
                self.report.latencies.append(ended - began)
                self.report.messages += len(turn)
                self.newest = (dialogue.session_id, answer["receipts"][-1]["seq"], ended)
            progress(len(turn))
        with self._lock:
            self.report.dialogues += 1

    def run(self, dialogues: Iterable[Dialogue], *, concurrency: int, progress: Callable[[int], Any]) -> Report:
        """All of them, so many at a time. A refused dialogue is reported and the others go on."""

        def one(dialogue: Dialogue) -> None:
            if self._stopped.is_set():
                return
            try:
                self.replay(dialogue, progress)
            except Refused as error:
                with self._lock:
                    self.report.bad.append(BadLine(dialogue.line, str(error)))

        began = time.monotonic()
        with ThreadPoolExecutor(concurrency) as pool:
            try:
                for done in [pool.submit(one, dialogue) for dialogue in dialogues]:
                    done.result()
            except BaseException:
                self.stop()
                raise
        self.report.seconds = time.monotonic() - began
        return self.report
