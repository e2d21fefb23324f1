"""MCP servers as tools: ``mcp:stdio:COMMAND`` starts one and offers what it lists, through the official package.

A connection belongs to the event loop in which it was made, and a run has one loop after another. So each server has
a thread with a loop of its own, and calls are handed over to it.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
import threading
from collections.abc import Callable
from typing import Any

from recollect.chat.media import PARTS, WHY
from recollect.images.content import ImageColumn
from recollect.runtime.error_text import named_error
from recollect.tools.signature import Signature
from recollect.tools.tool_definition import TIMEOUT_S, Tool
from recollect.types import BadInput, ToolResult

START_S = 60.0
CLOSE_S = 10.0


class ToolServer:
    """One running server and its tools."""

    def __init__(self, name: str, key: str) -> None:
        kind, _, command = name.removeprefix("mcp:").partition(":")
        if kind != "stdio" or not command.strip():
            raise BadInput(f"{key}={name} is not mcp:stdio:COMMAND")
        try:
            import mcp  # noqa: F401
        except ImportError:
            raise BadInput(f"{key}={name} needs the package mcp: pip install 'recollect-rl[mcp]'") from None
        self.tools: list[Tool] = []
        self._client: Any = None
        self._problem = ""
        self._loop = asyncio.new_event_loop()
        self._leave: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(shlex.split(command),), daemon=True)
        self._thread.start()
        if not self._ready.wait(START_S):
            self._problem = f"no answer within {START_S:g} seconds"
        if self._problem:
            self.close()
            raise BadInput(f"{key}={name} does not start: {self._problem}")

    def _serve(self, command: list[str]) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._talk(command))
        except BaseException as error:
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            self._problem = self._problem or named_error(error)
        finally:
            self._ready.set()
            self._loop.close()

    async def _talk(self, command: list[str]) -> None:
        from mcp import ClientSession, StdioServerParameters, stdio_client
        from mcp.types import PaginatedRequestParams

        self._leave = asyncio.Event()
        server = StdioServerParameters(command=command[0], args=command[1:])
        async with stdio_client(server, errlog=sys.stderr) as (read, write), ClientSession(read, write) as client:
            await client.initialize()
            self._client = client
            listed: list[Any] = []
            cursor: str | None = None
            while True:
                page = await client.list_tools(params=PaginatedRequestParams(cursor=cursor))
                listed += page.tools
                cursor = page.next_cursor
                if not cursor:
                    break
            self.tools = [self._tool(one) for one in listed]
            self._ready.set()
            await self._leave.wait()

    def _tool(self, listed: Any) -> Tool:
        signature = Signature(listed.description or "", listed.input_schema)
        return Tool(listed.name, self._caller(listed.name), signature, TIMEOUT_S)

    def _caller(self, name: str) -> Callable[..., Any]:
        async def call(**arguments: Any) -> ToolResult | str:
            if self._loop.is_closed():
                raise ConnectionError("the server has ended")
            waiting = asyncio.run_coroutine_threadsafe(self._client.call_tool(name, arguments), self._loop)
            return _shown(await asyncio.wrap_future(waiting))

        return call

    def close(self) -> None:
        """End the server."""
        if self._leave is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join(CLOSE_S)


def _shown(result: Any) -> ToolResult:
    """What a server answered: its text and its images; an error that it reports, or sound, is the tool's exception."""
    column, parts = ImageColumn([], "the tool", None), list[str]()
    for block in result.content:
        if block.type == "image":
            column.take(f"data:{block.mime_type};base64,{block.data}")
        elif block.type in PARTS:
            raise ValueError(f"the tool returned {PARTS[block.type]}; {WHY}")
        else:
            parts.append(getattr(block, "text", None) or f"[{block.type}]")
    if not result.content and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    return ToolResult("\n".join(parts), "exception" if result.is_error else "ok", images=tuple(column.taken))
