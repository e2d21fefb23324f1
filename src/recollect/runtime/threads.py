"""Work off the event loop: plain functions in threads, connections that outlive a loop, limits on what runs at once."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from recollect.runtime.error_text import named_error

T = TypeVar("T")
MOST_IDLE = 32  # threads that wait for more to do

ThreadWork = Callable[[], None]
_idle: deque[SimpleQueue[ThreadWork]] = deque()  # where threads that have nothing to do wait for it
os.register_at_fork(after_in_child=_idle.clear)  # a child has none of them


def _work_on(jobs: SimpleQueue[ThreadWork]) -> None:
    """What a thread does: one thing after the other."""
    while True:
        jobs.get()()
        if len(_idle) >= MOST_IDLE:
            return
        _idle.append(jobs)


def start_in_thread(work: ThreadWork) -> None:
    """Start some work in a thread that does nothing else: one that has ended its own, or a new one."""
    try:
        jobs = _idle.pop()
    except IndexError:
        jobs = SimpleQueue()
        threading.Thread(target=_work_on, args=(jobs,), daemon=True).start()
    jobs.put(work)


async def in_thread(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Call a plain function in a thread. One that hangs keeps its thread and does not hold up the program."""
    loop = asyncio.get_running_loop()
    waiting: list[asyncio.Future[Any]] = [loop.create_future()]

    def settle(value: Any, error: BaseException | None) -> None:
        for future in waiting:
            if not future.done():
                future.set_result(value) if error is None else future.set_exception(error)

    def work() -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = function(**given)
        except BaseException as caught:  # what is no plain error, and StopIteration, means something else to a loop
            plain = isinstance(caught, Exception | asyncio.CancelledError) and not isinstance(caught, StopIteration)
            error = caught if plain else RuntimeError(named_error(caught))
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, error)
        value = error = None  # an error holds this frame: it must not hold the error, or all that was seen would stay

    start_in_thread(work)
    try:
        return await waiting[0]
    finally:
        waiting.clear()  # for the same reason


def in_time(work: Callable[[], T], seconds: float, what: str) -> T:
    """Do what may hang, as storage does that went away: then it is a TimeoutError, and its thread is left behind."""
    done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def run() -> None:
        try:
            done.put((work(), None))
        except BaseException as error:
            done.put((None, error))

    start_in_thread(run)
    try:
        value, error = done.get(timeout=seconds)
    except Empty:
        raise TimeoutError(errno.ETIMEDOUT, f"{what} has not answered for {seconds:g} s") from None
    if error is not None:
        raise error
    made: T = value
    return made


@contextmanager
def reminding(what: str, warn: Callable[[str], None], every_s: float) -> Iterator[None]:
    """Say what goes on, again and again, while it takes longer than it should."""
    over, start = threading.Event(), time.monotonic()

    def remind() -> None:
        while not over.wait(every_s):
            warn(f"{what} has taken {time.monotonic() - start:.0f} s so far")

    threading.Thread(target=remind, daemon=True).start()
    try:
        yield
    finally:
        over.set()


@contextmanager
def contained() -> Iterator[None]:
    """Turn sys.exit and the like in a user's code into an ordinary error, so that they do not end the program."""
    try:
        yield
    except (Exception, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        raise RuntimeError(named_error(error)) from None


class Slots:
    """A semaphore for one event loop after another; None means no limit."""

    def __init__(self, count: int | None) -> None:
        self._count = count
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    def one(self) -> AbstractAsyncContextManager[Any]:
        """Hold one slot."""
        if self._count is None:
            return nullcontext()
        return self._by_loop.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._count))


class LoopThread:
    """An event loop in a thread of its own, for connections that outlive the loops of a run."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    async def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Await a coroutine in the thread's loop; cancelling the caller cancels it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The same for callers without an event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """End the thread and drop the work under way."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        if not self._thread.is_alive():
            self._loop.close()
