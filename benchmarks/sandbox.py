"""Short programs per second in the sandbox, against a fresh interpreter for each.

Three ways to run the same short program many times, two at a time per core: a fresh interpreter for each without any
isolation (the baseline), a fresh sandbox session for each (what a reward does), and blocks in sessions that stay open
(what `python_executor` does within a trajectory).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable

from recollect.config import Sandbox
from recollect.sandbox.pool import Pool

PROGRAM = "print(sum(i * i for i in range(100)))"
EXPECTED = "328350\n"
TARGET = 200.0


async def fresh_interpreter() -> str:
    """Run the program as everybody can, without isolation."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0].decode()


async def rate(run: Callable[[], Awaitable[str]], seconds: float, width: int) -> float:
    """Programs per second, ``width`` at a time; every output is checked."""
    count, until = 0, time.perf_counter() + seconds

    async def worker() -> None:
        nonlocal count
        while time.perf_counter() < until:
            assert await run() == EXPECTED
            count += 1

    start = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(width)))
    return count / (time.perf_counter() - start)


async def blocks(pool: Pool, seconds: float, width: int) -> float:
    """Blocks per second in sessions that stay open."""
    count, until = 0, time.perf_counter() + seconds

    async def worker() -> None:
        nonlocal count
        async with pool.session() as session:
            while time.perf_counter() < until:
                assert (await session.python(PROGRAM)).out == EXPECTED
                count += 1

    start = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(width)))
    return count / (time.perf_counter() - start)


async def first_answer(repeats: int) -> float:
    """Seconds from nothing to the first answer, the best of a few."""
    took = []
    for _ in range(repeats):
        start = time.perf_counter()
        pool = Pool(Sandbox())
        await pool.run(PROGRAM)
        took.append(time.perf_counter() - start)
        pool.close()
    return min(took)


async def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each measurement")
    parser.add_argument("--isolation", default="auto", help="auto, namespaces or bubblewrap")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    pool = Pool(Sandbox(isolation=options.isolation))
    walls = await asyncio.to_thread(pool.start)
    print(f"{cores} cores; walls: {', '.join(walls)}")

    async def session() -> str:
        return (await pool.run(PROGRAM)).out

    base = await rate(fresh_interpreter, options.seconds, 2 * cores)
    fresh = await rate(session, options.seconds, 2 * cores)
    kept = await blocks(pool, options.seconds, 2 * cores)
    pool.close()
    print(f"{'what':<44} {'per second':>10} {'ratio':>7}")
    print(f"{'fresh interpreter, not isolated (baseline)':<44} {base:>10.0f} {1.0:>6.1f}×")
    verdict = f"≥ {TARGET:.0f}/s  {'ok' if fresh >= TARGET else 'MISSED'}"
    print(f"{'fresh sandbox session for each program':<44} {fresh:>10.0f} {fresh / base:>6.1f}×  {verdict}")
    print(f"{'blocks in open sessions':<44} {kept:>10.0f} {kept / base:>6.1f}×")
    print(f"first answer of a cold sandbox: {await first_answer(3):.2f} s")


if __name__ == "__main__":
    asyncio.run(main())
