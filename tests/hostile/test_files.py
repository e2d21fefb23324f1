"""File tools keep what they do not change: every byte, whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from recollect.config import Sandbox
from recollect.sandbox.pool import Pool
from recollect.sandbox.sandbox_session import ProgramResult, SandboxSession

SIZES = (
    "import hashlib, os\n"
    "for n in sorted(os.listdir('.')):\n    print(n, os.path.getsize(n), hashlib.md5(open(n, 'rb').read()).hexdigest())"
)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    made = Pool(Sandbox(memory_mb=128, disk_mb=40, file_mb=16))
    yield made
    made.close()


def told(pool: Pool, prepared: str, **edit: object) -> tuple[ProgramResult, str, str]:
    """What an edit says of a file ``f`` that a program made, and what lies there before and after."""

    async def go() -> tuple[ProgramResult, str, str]:
        async with pool.session() as session:
            assert (await session.program(prepared)).outcome == "ok"
            before = await session.program(SIZES)
            ran = await session.file("edit_file", **{"path": "f", "every": False, **edit})
            return ran, before.out, (await session.program(SIZES)).out

    return asyncio.run(go())


def read(session: SandboxSession, path: str) -> object:
    return session.file("read_file", path=path, start=1, lines=0)


def test_a_large_file_is_kept_whole(pool: Pool) -> None:
    ran, _, after = told(pool, "open('f', 'w').write('needle' + 'x' * 5_000_000)", old="needle", new="thread")
    assert ran.out == "replaced 1 occurrence in f"
    assert after.split()[1] == "5000006"


def test_bytes_that_are_not_text_are_kept(pool: Pool) -> None:
    made = "open('f', 'wb').write(bytes(range(256)) + b'\\r\\nneedle\\r\\n\\xff\\xfe')"
    ran, _, after = told(pool, made, old="needle", new="näh")
    assert ran.outcome == "ok"
    wanted = "open('g', 'wb').write(bytes(range(256)) + b'\\r\\nn\\xc3\\xa4h\\r\\n\\xff\\xfe')"
    _, _, other = told(pool, wanted + "\nopen('f', 'w').write('x')", old="x", new="y")
    assert after.split()[1:3] == other.split()[4:6]


@pytest.mark.parametrize(
    ("prepared", "edit"),
    [
        ("open('f', 'w').write('x' * 900_000)", {"old": "x", "new": "y" * 1000, "every": True}),
        ("open('f', 'w').write('x' * 15_000_000)", {"old": "x" * 15_000_000, "new": "y" * 17_000_000}),
        ("open('f', 'w').write('a')\nfor n in 'ghi': open(n, 'wb').write(b'x' * 13_000_000)",
         {"old": "a", "new": "b" * 3_000_000}),
        ("open('f', 'w').write('a')", {"old": "a", "new": "\ud800"}),
        ("open('f', 'w').write('a')\nimport os\nos.chmod('f', 0o444)", {"old": "a", "new": "b"}),
    ],
    ids=["memory", "file", "disk", "half a character", "read-only"],
)  # fmt: skip
def test_what_cannot_be_written_changes_nothing(pool: Pool, prepared: str, edit: dict[str, object]) -> None:
    ran, before, after = told(pool, prepared, **edit)
    assert ran.outcome == "error"
    assert ran.err
    assert before == after


def test_writing_and_appending_are_all_or_nothing(pool: Pool) -> None:
    async def go() -> None:
        async with pool.session() as session:
            await session.write("f", "kept")
            for append in (False, True):
                for text in ("y" * 17_000_000, "\ud800"):
                    assert (await session.write("f", text, append=append)).outcome == "error"
                    assert (await read(session, "f")).out == "kept"  # type: ignore[misc]
            assert (await session.write("f", " on", append=True)).outcome == "ok"
            assert (await session.command("cat f; ls -A")).out == "kept onf\n"

    asyncio.run(go())


def test_links_modes_and_what_is_no_file(pool: Pool) -> None:
    async def go() -> None:
        async with pool.session() as session:
            await session.command("mkdir d; echo one > d/f; chmod 755 d/f; ln -s d/f link")
            assert (await session.file("edit_file", path="link", old="one", new="two", every=False)).outcome == "ok"
            shown = await session.command("cat d/f; stat -c %a d/f; test -L link && echo link")
            assert shown.out == "two\n755\nlink\n"
            for path in ("/dev/null", "d"):
                assert (await session.file("edit_file", path=path, old="a", new="b", every=False)).outcome == "error"
                assert (await session.write(path, "x")).outcome == "error"

    asyncio.run(go())


def test_what_is_not_shown_is_said(pool: Pool) -> None:
    async def go() -> None:
        async with pool.session() as session:
            made = "open('f', 'w').write(('x' * 99 + '\\n') * 50_000)\nopen('g', 'wb').write(b'a\\xff\\x0cb\\n')"
            await session.program(made)
            cut = await session.file("read_file", path="f", start=1, lines=2)
            assert cut.out.endswith("(lines 1 to 2 of 40000)\n(only the first 4000000 of 5000000 bytes)")
            assert (
                "(only the first 4000000 of 5000000 bytes)" in (await session.file("grep", pattern="y", path="f")).out
            )
            odd = await read(session, "g")  # type: ignore[misc]
            assert odd.out == "a\ufffd\x0cb\n(bytes that are not UTF-8 are shown as \ufffd)"

    asyncio.run(go())
