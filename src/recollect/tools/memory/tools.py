"""The tools of the agent ``tool_memory``: notes are written while a document is read, and looked up to answer."""

from __future__ import annotations

from collections.abc import Callable

from recollect.retrieval.text_index import TextIndex
from recollect.runtime.threads import in_thread
from recollect.tools.memory.store import CORE, Full
from recollect.tools.memory.workspace import MemoryWorkspace, state
from recollect.tools.tool_definition import tool
from recollect.types import ToolResult

MOST = 20  # things that a search may return
LONGEST = 200  # characters of a title


@tool
async def memory_add(workspace: MemoryWorkspace, title: str, content: str) -> ToolResult:
    """Write a new note. It fails if there is a note of this title. The title "core" adds to the core text instead.

    Args:
        title: A short title that tells the note from all others.
        content: What to remember.
    """
    return _change(workspace, "memory_add", title, lambda: workspace.memory.add(title, content), "Added")


@tool
async def memory_update(
    workspace: MemoryWorkspace, title: str, content: str, new_title: str | None = None
) -> ToolResult:
    """Replace what a note says. The title "core" replaces the core text.

    Args:
        title: The title of a note that is there.
        content: What it shall say from now on.
        new_title: Another title for it.
    """
    change = lambda: workspace.memory.update(title, content, new_title)
    return _change(workspace, "memory_update", title, change, "Updated", new_title)


@tool
async def memory_delete(workspace: MemoryWorkspace, title: str) -> ToolResult:
    """Remove a note that is no longer needed.

    Args:
        title: The title of a note that is there.
    """

    def change() -> str:
        workspace.memory.delete(title)
        return ""

    return _change(workspace, "memory_delete", title, change, "Deleted")


@tool
async def memory_key_retrieve(workspace: MemoryWorkspace, title: str) -> ToolResult:
    """Read one note by its title.

    Args:
        title: The note's title.
    """
    content = workspace.memory.get(title)
    workspace.found("memory_key_retrieve", title, [] if content is None else [workspace.memory.find(title) or CORE])
    return ToolResult(_missing(workspace, title) if content is None else f"{title.strip()}: {content}")


@tool
async def memory_list(workspace: MemoryWorkspace, filter: str | None = None) -> ToolResult:
    """List the titles of the notes.

    Args:
        filter: Only titles that hold this text.
    """
    workspace.other("memory_list", filter or "", None)
    part = (filter or "").casefold()
    titles = [t for t in workspace.memory.notes if part in t.casefold()]
    return ToolResult(f"{len(titles)}: " + ", ".join(titles) if titles else "0 notes")


@tool
async def memory_bm25_retrieve(workspace: MemoryWorkspace, query: str, top_k: int | None = None) -> ToolResult:
    """Search by words.

    Args:
        query: What to look for, in a few words.
        top_k: How many to return.
    """
    return await _search(workspace, "memory_bm25_retrieve", query, top_k, False)


@tool(timeout=120.0)
async def memory_embedding_retrieve(workspace: MemoryWorkspace, query: str, top_k: int | None = None) -> ToolResult:
    """Search by meaning.

    Args:
        query: What to look for, in a few words.
        top_k: How many to return.
    """
    return await _search(workspace, "memory_embedding_retrieve", query, top_k, True)


WRITING = (memory_add, memory_update, memory_delete, memory_key_retrieve, memory_list)
ANSWERING = (memory_key_retrieve, memory_list)
SEARCHES = {"bm25": memory_bm25_retrieve, "embedding": memory_embedding_retrieve}


def _change(
    workspace: MemoryWorkspace,
    tool_name: str,
    title: str,
    change: Callable[[], str],
    done: str,
    new_title: str | None = None,
) -> ToolResult:
    """Make a change and say what came of it."""
    before = state(workspace.memory)
    problem = _bad_title(title) or (_bad_title(new_title) if new_title is not None else "")
    if problem:
        workspace.other(tool_name, title[:LONGEST], False)
        return ToolResult(problem)
    try:
        lost = change()
    except KeyError as error:
        workspace.other(tool_name, title, False)
        there = workspace.memory.get(error.args[0]) is not None
        return ToolResult(f"There is a note {error.args[0]!r} already." if there else _missing(workspace, title))
    except Full as error:
        workspace.other(tool_name, title, False)
        return ToolResult(str(error))
    workspace.changed(tool_name, title, before)
    used = f"{workspace.memory.used()} of {workspace.memory.budget} tokens used"
    cut = f" The end did not fit and was cut ({used}): {lost[:80]!r}" if lost else ""
    return ToolResult(f"{done}.{cut}")


async def _search(workspace: MemoryWorkspace, tool_name: str, query: str, top_k: int | None, dense: bool) -> ToolResult:
    if not query.strip():
        raise ValueError("the query is empty")
    if top_k is not None and top_k < 1:
        raise ValueError("top_k must be at least 1")
    most, method = min(top_k or workspace.top_k, MOST), "dense" if dense else "bm25"
    if workspace.source is not None:
        finder, names, first = workspace.source, [f"chunk {i + 1}" for i in range(workspace.read)], workspace.read
    else:
        finder, names, first = TextIndex(workspace.embedder), list(workspace.memory.notes), len(workspace.memory.notes)
        for title, content in workspace.memory.notes.items():
            finder.add(f"{title}: {content}")
    wanted = {"query": query, "most": most, "method": method, "first": first}
    hits = await in_thread(finder.search, wanted) if dense else finder.search(query, most, method, first)
    shown = [(names[i], finder.texts[i]) for i in hits]
    workspace.found(tool_name, query, [title for title, _ in shown])
    return ToolResult("\n".join(text for _, text in shown) or "Nothing was found.")


def _bad_title(title: str) -> str:
    if not title.strip():
        return "A note needs a title."
    return f"A title has at most {LONGEST} characters." if len(title) > LONGEST else ""


def _missing(workspace: MemoryWorkspace, title: str) -> str:
    return f"There is no note {title.strip()!r}." if workspace.memory.notes else "There are no notes yet."
