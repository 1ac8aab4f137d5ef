"""Many sockets of the live feed in one process, as cheap as they can be: `python -m tests.bench.feed_client PORT PATH`.

stdin: a line of JSON, a session key for each socket. Opens them, then says `{"open": N}`, and for the k-th alert frame,
when the last socket has it, `{"k": k, "at": monotonic seconds}`. No websocket library: what is measured is the server,
and the client has the other core.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import uvloop

SHORT, LONG = 126, 127  # what the second byte says of a frame's length


class Crowd:
    def __init__(self, size: int) -> None:
        self.size, self.greeted = size, 0
        self.arrived: list[int] = []

    def took(self, k: int) -> None:
        if k == len(self.arrived):
            self.arrived.append(0)
        self.arrived[k] += 1
        if self.arrived[k] == self.size:
            print(json.dumps({"k": k, "at": time.monotonic()}), flush=True)


class Peer(asyncio.Protocol):
    def __init__(self, crowd: Crowd, port: int, path: str, session: str) -> None:
        self._crowd, self._rest, self._seen, self._upgraded = crowd, b"", 0, False
        self._request = (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==\r\nCookie: sessionid={session}\r\n\r\n"
        ).encode()
        self.greeted = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        at = 0
        if not self._upgraded:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._rest = data
                return
            at, self._upgraded = end + 4, True
        while len(data) >= at + 2:
            size, body = data[at + 1], at + 2
            if size == SHORT:
                size, body = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
            elif size == LONG:
                size, body = int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
            if len(data) < body + size:
                break
            if data[at] == 0x81:
                if data.startswith(b'{"alert":', body):
                    self._crowd.took(self._seen)
                    self._seen += 1
                elif not self.greeted.done():
                    self.greeted.set_result(None)
            elif data[at] == 0x89:
                self._transport.write(b"\x8a" + bytes([0x80 | size]) + bytes(4) + data[body : body + size])
            elif data[at] == 0x88:
                print(json.dumps({"closed": int.from_bytes(data[body : body + 2], "big")}), flush=True)
            at = body + size
        self._rest = data[at:]


async def main(port: int, path: str, sessions: list[str]) -> None:
    loop = asyncio.get_running_loop()
    crowd = Crowd(len(sessions))
    for start in range(0, len(sessions), 100):
        chosen = sessions[start : start + 100]
        made = [
            await loop.create_connection(lambda one=one: Peer(crowd, port, path, one), "127.0.0.1", port)  # type: ignore[misc]
            for one in chosen
        ]
        await asyncio.wait_for(asyncio.gather(*(peer.greeted for _, peer in made)), 30)
    print(json.dumps({"open": len(sessions)}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2], json.loads(sys.stdin.readline())))
