"""Collecting trajectories: many agents at once, each with a deadline, and failures that stay their own.

A timeout or a crash marks that trajectory with a typed failure. Its siblings go on; it is excluded from statistics and
counted in the metrics.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from recollect.agents.cluster_work import ClusterWork
from recollect.agents.find import find_agent
from recollect.agents.progress import RolloutProgress, report
from recollect.agents.session import Binding, Session, SessionTools
from recollect.chat import TOOL_PARSERS
from recollect.config import Config
from recollect.domains.registry import tools_of
from recollect.policies.endpoint import EndpointDown, EndpointGone, GoesAway
from recollect.registries import AGENTS
from recollect.retrieval.embedding_check import check_embedding
from recollect.rewards import find_reward, marks_of
from recollect.rewards.scoring import as_score, call, score_groups
from recollect.runtime.deadline import within
from recollect.runtime.error_text import error_text, named_error
from recollect.runtime.plugins import find
from recollect.runtime.secrets import redacted
from recollect.runtime.threads import Slots, contained
from recollect.runtime.work_place import room, working
from recollect.sandbox.cluster_pool import HostLost
from recollect.sandbox.shared import configure
from recollect.tools import Tool, Toolbox
from recollect.types import Failure, FailureKind, Group, Reward, Sampling, Task, Trajectory

ROUNDS = 3  # how often attempts that an endpoint failed are tried again
REWARD_THREADS = 32  # rewards of the user's own that run at once
AWAY: FailureKind = "endpoint"
AgentLoop = Callable[[Task, Session, Config], Awaitable[str]]


class Collector:
    """An agent, the policies that play its roles, and its reward, ready to attempt tasks."""

    def __init__(
        self, cfg: Config, roles: Mapping[str, Binding], on_done: Callable[[Trajectory], None] | None = None
    ) -> None:
        self.cfg, self.roles = cfg, dict(roles)
        self.agent: AgentLoop = find_agent(cfg.agent.agent_type)
        check_embedding(cfg)
        self.reward: Reward = find_reward(cfg.agent.reward_name, cfg)
        self.place = ClusterWork(cfg, self._said) if cfg.agent.run_on == "cluster" else None
        self.builtin_reward = marks_of(self.reward).inline
        self.together = marks_of(self.reward).level != "trajectory"  # scored when all attempts are done
        configure(cfg.sandbox)
        self.on_done = on_done or (lambda trajectory: None)
        self.on_progress: Callable[[RolloutProgress], None] | None = None  # called every second while attempts go on
        self.warn: Callable[[str], None] = lambda message: None
        self.endpoints: list[GoesAway] = list(
            dict.fromkeys(b.policy for b in self.roles.values() if hasattr(b.policy, "back"))
        )
        at_once = cfg.agent.max_concurrency if self.builtin_reward else REWARD_THREADS
        self.scoring = Slots(1 if cfg.reward_model.reward_manager == "naive" else at_once)
        self.toolbox: Toolbox | None = None
        try:
            self._open()
        except BaseException:
            if self.place is not None:
                self.place.close()
            raise

    def _open(self) -> None:
        """The tools, and where they and the reward are computed."""
        cfg, place = self.cfg, self.place
        if place is not None:
            self.endpoints.append(place)
            place.send_reward(self.reward, cfg.agent.reward_name)
        tools = tools_of(cfg)
        self.toolbox = self._made(tools) if tools else None
        self.own_tools = AGENTS.knows(cfg.agent.agent_type, "by_source")  # those of a task's domain
        self.by_domain: dict[str, Toolbox] = {}  # of the agent `domain`, made when a task needs them
        if cfg.agent.tool_parser is not None:
            find(cfg.agent.tool_parser, TOOL_PARSERS, "agent.tool_parser")

    def _made(self, tools: Sequence[str | Tool]) -> Toolbox:
        if self.place is None:
            return Toolbox(tools, self.cfg)
        made = Toolbox(tools, self.cfg, sandbox=self.place.pool)
        for tool in made.tools.values():
            self.place.send_tool(tool)
        return made

    def _said(self, text: str) -> None:
        self.warn(text)

    async def close(self) -> None:
        """End what the tools hold: servers, sandboxes, instances."""
        for toolbox in (self.toolbox, *self.by_domain.values()):
            if toolbox is not None:
                await toolbox.close()
        if self.place is not None:
            self.place.close()

    def _toolbox(self, task: Task) -> Toolbox | None:
        """The tools of a task."""
        if not self.own_tools or self.toolbox is not None:
            return self.toolbox
        return self.toolbox_of(task.source)

    def toolbox_of(self, domain: str) -> Toolbox:
        """The tools of a domain."""
        if domain not in self.by_domain:
            self.by_domain[domain] = self._made(tools_of(self.cfg, domain))
        return self.by_domain[domain]

    async def collect(self, tasks: Sequence[Task], n: int, sampling: Sampling, key: str) -> list[Group]:
        """``n`` attempts at each task. ``key`` names this collection; sampling noise is derived from it."""
        with working(self.place):
            return await self._collect(tasks, n, sampling, key)

    async def _collect(self, tasks: Sequence[Task], n: int, sampling: Sampling, key: str) -> list[Group]:
        groups = [Group(task, [Trajectory(task.id, i) for i in range(n)]) for task in tasks]
        await self._attempt_all([self._session(g, i, sampling, key) for g in groups for i in range(n)])
        for _ in range(ROUNDS if self.endpoints else 0):
            await self._again(groups, sampling, key)
        for trajectory in (t for g in groups for t in g.trajectories if is_away(t) and not self.together):
            self.on_done(trajectory)
        if self.together:
            await score_groups(self.reward, groups, self.cfg.agent.reward_timeout_s)
            for trajectory in (t for g in groups for t in g.trajectories):
                self._add_tool_reward(trajectory)
                self.on_done(trajectory)
        return groups

    async def _again(self, groups: Sequence[Group], sampling: Sampling, key: str) -> None:
        """Repeat the attempts that failed because an endpoint was down, once it is back."""
        lost = [(g, i) for g in groups for i, t in enumerate(g.trajectories) if is_away(t)]
        for endpoint in self.endpoints if lost else ():
            if not await endpoint.back(self.warn):
                raise EndpointGone(f"{endpoint.loss}; {len(lost)} attempts failed", groups)
        for group, i in lost:
            group.trajectories[i] = Trajectory(group.task.id, i)
        await self._attempt_all([self._session(g, i, sampling, key) for g, i in lost])

    def _session(self, group: Group, i: int, sampling: Sampling, key: str) -> Session:
        return Session(group.task, group.trajectories[i], self.roles, sampling, f"{key}/{group.task.id}/{i}")

    async def _attempt_all(self, sessions: Sequence[Session]) -> None:
        """Attempts side by side, `agent.max_concurrency` of them at most, with a report now and then."""
        gate = asyncio.Semaphore(self.cfg.agent.max_concurrency)
        reports = asyncio.create_task(report(sessions, self.on_progress)) if self.on_progress is not None else None
        try:
            await asyncio.gather(*(self._attempt(session, gate) for session in sessions))
        finally:
            if reports is not None:
                reports.cancel()

    async def _attempt(self, session: Session, gate: asyncio.Semaphore) -> None:
        task, trajectory = session.task, session.trajectory
        async with gate:
            trajectory.failure = await self._guarded(self._solve(task, session), session)
        if trajectory.failure is None and not self.together:
            async with self.scoring.one(), room(self.reward):
                trajectory.failure = await self._guarded(self._score(task, trajectory), None)
        session.ended = True
        if trajectory.failure is not None:
            trajectory.stop = "failed"
        if not self.together and not is_away(trajectory):  # which may be attempted again
            self.on_done(trajectory)

    async def _solve(self, task: Task, session: Session) -> None:
        async with self._tools(task, session):
            session.trajectory.answer = str(await self.agent(task, session, self.cfg))
        session.trajectory.stop = session.trajectory.stop or "answered"

    @asynccontextmanager
    async def _tools(self, task: Task, session: Session) -> AsyncIterator[None]:
        """The session's tools, open while its agent runs and released however it ends."""
        toolbox = self._toolbox(task)
        if toolbox is None:
            yield
            return
        async with AsyncExitStack() as stack:
            try:
                open_tools = await stack.enter_async_context(toolbox.open(task, session.trajectory))
            except Exception as error:
                session.tools_error = error
                raise
            session.tools = SessionTools(toolbox.schemas, open_tools, session.trajectory)
            try:
                yield
            finally:
                session.trajectory.tool_calls = dict(Counter(session.trajectory.tool_calls) + open_tools.counts)

    async def _score(self, task: Task, trajectory: Trajectory) -> None:
        trajectory.score = await call(self.reward, task, trajectory, self.builtin_reward)
        self._add_tool_reward(trajectory)

    def _add_tool_reward(self, trajectory: Trajectory) -> None:
        """Add the rewards that tools gave to the reward of the trajectory."""
        score, gained = trajectory.score, trajectory.tool_reward
        if (self.toolbox is not None or self.by_domain) and score is not None:
            trajectory.score = as_score(
                replace(
                    score,
                    total=score.total + gained,
                    parts={**score.parts, "tools": gained},
                    roles={k: v + gained for k, v in score.roles.items()},
                    questions=tuple(v + gained for v in score.questions),
                )
            )

    async def _guarded(self, work: Awaitable[None], session: Session | None) -> Failure | None:
        """The one error boundary: whatever goes wrong in an agent (or, without a session, a reward) is a Failure."""
        what, seconds = ("answer", self.cfg.agent.timeout_s) if session else ("reward", self.cfg.agent.reward_timeout_s)
        kind: FailureKind = "agent" if session else "reward"
        try:
            async with within(seconds) as deadline:
                with contained():
                    await work
        except asyncio.CancelledError as error:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise
            return Failure(kind, f"cancelled from inside: {error_text(error)}")
        except Exception as error:
            if deadline.expired() and isinstance(error, TimeoutError):
                return Failure("timeout" if session else "reward", f"no {what} within {seconds:g} s")
            if session is not None and error is session.policy_error:
                kind = AWAY if isinstance(error, EndpointDown) else "policy"
            if session is not None and error is session.tools_error:
                kind = "tools"
            if isinstance(error, HostLost):
                kind = AWAY
            return Failure(kind, redacted(named_error(error)))
        return None


def is_away(trajectory: Trajectory) -> bool:
    """True when an attempt failed because an endpoint did not answer."""
    return trajectory.failure is not None and trajectory.failure.kind == AWAY


def failures(groups: Sequence[Group]) -> Counter[str]:
    """How many trajectories failed, by kind."""
    return Counter(t.failure.kind for g in groups for t in g.trajectories if t.failure is not None)


def first_failure(groups: Sequence[Group]) -> str:
    """One line about the most common kind of failure."""
    kind = failures(groups).most_common(1)[0][0]
    example = next(
        t.failure.message for g in groups for t in g.trajectories if t.failure is not None and t.failure.kind == kind
    )
    return f"{kind}: {example}"
