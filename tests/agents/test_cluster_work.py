"""Tools and rewards on the CPUs of a Ray cluster: the same answers, deadlines and failures as in this process.

A cluster takes seconds to start, so that one test does everything that needs one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from recollect.agents import rollout
from recollect.agents.rollout import Collector
from recollect.agents.session import Binding, Session
from recollect.config import Config
from recollect.config.compose import compose
from recollect.dist.ray_calls import run_there
from recollect.runtime.console import Console
from recollect.sandbox.cluster_pool import HostLost
from recollect.sandbox.pool import Pool
from recollect.types import BadInput, Group, Task, ToolCall
from recollect.workflows.dry_run.dry_run import dry_run
from tests.dist.clusters import cluster
from tests.standin import Standin, collect
from tests.waiting import until

pytest.importorskip("ray")
pytestmark = [pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc"), pytest.mark.timeout(300)]

OWN = '''
import os, time
from pathlib import Path
from recollect.tools import tool
from recollect.types import Task

HERE = Path(__file__).parent
FACTOR = 3


@tool
def where(number: int) -> str:
    """Where a call is made.

    Args:
        number: Some number.
    """
    return f"{number * FACTOR} in {os.getpid()}"


@tool
def wrong() -> str:
    """Raises."""
    raise KeyError("no such thing")


@tool(timeout=2.0)
def late() -> str:
    """Never answers."""
    (HERE / "late").write_text(str(os.getpid()))
    time.sleep(60)
    return "late"


@tool
def falls() -> str:
    """Ends its process the first time."""
    if not (HERE / "fallen").exists():
        (HERE / "fallen").touch()
        os._exit(3)
    return "stood up"


@tool
async def waits(task: Task) -> str:
    """Waits, in the process of the run."""
    return f"waited in {os.getpid()}"


def pid(answer) -> dict:
    return {"reward": 0.5, "pid": os.getpid()}


def slow(answer) -> float:
    time.sleep(60)
    return 1.0


def refuses(answer) -> float:
    raise ValueError("no verdict")
'''
CALLS = [
    *(("where", {"number": 14}), ("wrong", {}), ("late", {}), ("falls", {}), ("waits", {})),
    *(("python_executor", {"code": "x = 6"}), ("python_executor", {"code": "print(x * 7)"})),
]


def collector(renderer: Any, folder: Path, reward: str, *more: str) -> Collector:
    own = folder / "own.py"
    own.write_text(OWN) if not own.exists() else None
    tools = [f"{own}:{name}" for name in ("where", "wrong", "late", "falls", "waits")]
    named = [f"agent.tools=[{','.join([*tools, 'python_executor'])}]", "agent.agent_type=hf", "trainer.device=cpu"]
    cfg = compose(None, [*named, f"agent.reward_name={own}:{reward}", "trainer.node_wait_s=30", *more])
    return Collector(cfg, {"*": Binding(Standin(renderer), renderer)})


def calling(made: Collector, *calls: tuple[str, dict[str, Any]]) -> Group:
    """An attempt that makes some calls, one after the other; the results are its answer."""

    async def agent(task: Task, session: Session, cfg: Config) -> str:
        assert session.tools is not None
        for name, given in calls:
            await session.tools.call_all([ToolCall(name, given)])
        return "done"

    made.agent = agent
    return collect(made, n=1)[0]


def results(group: Group) -> list[tuple[str, str]]:
    """Outcome and text of each call, without process ids."""
    found = []
    for action in group.trajectories[0].actions:
        words = [word for word in action.output.split() if not word.isdigit() or len(word) < 4]
        found.append((action.outcome, " ".join(words)))
    return found


@pytest.mark.slow
def test_tools_and_rewards_on_a_cluster(renderer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))  # of the nodes …
    monkeypatch.setenv("RAY_TMPDIR", tempfile.gettempdir())  # … but not of Ray, whose names have to be short
    here = collector(renderer, tmp_path, "pid")
    (tmp_path / "fallen").touch()  # in a thread of this process it would end the tests
    expected = calling(here, *CALLS)
    asyncio.run(here.close())
    (tmp_path / "fallen").unlink()
    with cluster(1, 1):
        made = collector(renderer, tmp_path, "pid", "agent.run_on=cluster")
        group = calling(made, *CALLS)
        assert results(group) == results(expected)
        assert [outcome for outcome, _ in results(group)] == ["ok", "exception", "timeout", "ok", "ok", "ok", "ok"]
        texts = [action.output for action in group.trajectories[0].actions]
        assert f"in {os.getpid()}" not in texts[0]
        assert f"in {os.getpid()}" in texts[4]  # what waits stays
        assert texts[6].strip() == "42"
        late = int((tmp_path / "late").read_text())
        assert until(lambda: not Path(f"/proc/{late}").exists())  # a call that is given up ends
        assert group.trajectories[0].failure is None, group.trajectories[0].failure
        score = group.trajectories[0].score
        assert score is not None
        assert (score.total, score.parts["pid"] != os.getpid()) == (0.5, True)
        lost_sandbox(made)
        asyncio.run(made.close())
        failures(renderer, tmp_path)
        refusals(renderer, tmp_path)
        planned(tmp_path)
    assert until(lambda: not list((tmp_path / "tmp").glob("recollect-sandbox-*")))


def lost_sandbox(made: Collector) -> None:
    """The host of a sandbox is killed in a call: the attempt is made again, and ends as if nothing had been."""
    assert made.place is not None
    hosts = list(made.place.pool.hosts.values())
    assert any(host.ready for host in hosts)
    told: list[str] = []
    made.warn = told.append
    processes = [process_of(host) for host in hosts]
    threading.Timer(1.0, lambda: [os.kill(process, signal.SIGKILL) for process in processes]).start()
    slowly = {"code": "import time; y = 5; time.sleep(3)"}
    group = calling(made, ("python_executor", slowly), ("python_executor", {"code": "print(y + 1)"}))
    attempt = group.trajectories[0]
    assert attempt.failure is None
    assert [(action.outcome, action.output.strip()) for action in attempt.actions][1:] == [("ok", "6")]
    assert any("sandboxes on the Ray cluster were lost" in line for line in told)
    assert not set(made.place.pool.hosts.values()) & set(hosts)


def process_of(host: Any) -> int:
    import ray

    return int(ray.get(host.actor.__ray_call__.remote(lambda self: __import__("os").getpid())))


def failures(renderer: Any, folder: Path) -> None:
    """Rewards that raise, and that miss their deadline."""
    for reward, words in (("refuses", "ValueError: no verdict"), ("slow", "no reward within 2 s")):
        made = collector(renderer, folder, reward, "agent.run_on=cluster", "agent.reward_timeout_s=2")
        failure = calling(made).trajectories[0].failure
        assert failure is not None
        assert (failure.kind, failure.message) == ("reward", words)
        asyncio.run(made.close())


def refusals(renderer: Any, folder: Path) -> None:
    """What cannot be sent, and a cluster without a CPU to spare."""
    (folder / "locked.py").write_text(
        "import threading\nLOCK = threading.Lock()\ndef held(answer): return LOCK.locked()\n"
    )
    with pytest.raises(BadInput, match=r"held cannot be sent to a Ray cluster \(.*\); set agent.run_on=driver"):
        collector(renderer, folder, "pid", "agent.run_on=cluster", f"agent.reward_name={folder / 'locked.py'}:held")
    import ray

    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level="ERROR")
    taken = ray.util.placement_group([{"CPU": 1}, {"CPU": 1}])
    assert taken.wait(30)
    with pytest.raises(
        BadInput, match="needs a CPU that ranks and servers leave free, and all 2 of the cluster are taken"
    ):
        collector(renderer, folder, "pid", "agent.run_on=cluster", "trainer.node_wait_s=1")
    ray.util.remove_placement_group(taken)
    ray.shutdown()


def planned(folder: Path) -> None:
    """What the dry run says of it."""
    given = ["agent.run_on=cluster", "trainer.device=cpu", f"trainer.default_local_dir={folder / 'none'}"]
    assert dry_run(compose("needle", given), Console(quiet=True))["work_cpus"] == 2.0
    with pytest.raises(
        BadInput, match=r"agent.run_on=cluster needs a CPU .* leave free; the cluster has 2, and the run"
    ):
        dry_run(compose("needle", [*given, "trainer.nnodes=2"]), Console(quiet=True))
    assert not (folder / "none").exists()


class Elsewhere:
    """A place that computes in this process, and whose sandboxes are lost at first."""

    loss = "it is gone"

    def __init__(self, cfg: Config, warn: Any) -> None:
        self.pool, self.sent, self.called, self.losses, self.held = self, [], [], 2, 0
        self.own = Pool(cfg.sandbox)

    def send_tool(self, tool: Any) -> None:
        self.sent.append(tool.name)

    def send_reward(self, reward: Any, name: str) -> None:
        self.sent.append(name.rpartition(":")[2])

    async def call(self, function: Any, given: Any) -> Any:
        self.called.append(function.__name__)
        return function(**given)

    @asynccontextmanager
    async def room(self, function: Any) -> AsyncIterator[None]:
        self.held += 1
        yield

    def start(self) -> None:
        self.own.start()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        self.losses -= 1
        if self.losses >= 0:
            raise HostLost("the node is gone")
        async with self.own.session() as session:
            yield session

    async def back(self, warn: Any) -> bool:
        return True

    def close(self) -> None:
        self.own.close()


def test_where_work_goes(renderer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain functions and sandboxes go to the place; an attempt whose sandbox is lost there is made again."""
    monkeypatch.setattr(rollout, "ClusterWork", Elsewhere)
    (tmp_path / "fallen").touch()
    made = collector(renderer, tmp_path, "pid", "agent.run_on=cluster")
    place: Any = made.place
    assert place.sent == ["pid", "where", "wrong", "late", "falls", "waits", "python_executor"]
    group = calling(made, ("where", {"number": 2}), ("waits", {}), ("python_executor", {"code": "print(6 * 7)"}))
    attempt = group.trajectories[0]
    assert (attempt.failure, attempt.actions[-1].output.strip()) == (None, "42")
    assert place.called == ["where", "where", "where", "pid"]  # three attempts, of which two lost their sandbox
    assert place.held >= 4
    place.losses = 100
    lost = calling(made, ("python_executor", {"code": "1"})).trajectories[0]
    assert lost.failure is not None
    assert (lost.failure.kind, lost.failure.message) == ("endpoint", "HostLost: the node is gone")
    asyncio.run(made.close())


def test_what_a_task_makes_of_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cloudpickle = pytest.importorskip("ray").cloudpickle

    def call(function: Any, **given: Any) -> Any:
        data = cloudpickle.dumps(function)
        return run_there(data, data.hex(), (str(tmp_path), *sys.path), given)

    assert call(lambda x: x + 1, x=2) == (True, 3)
    assert call(lambda x: [][x], x=2) == (False, ("IndexError", "list index out of range"))
    assert call(sys.exit, status=1)[1][0] == "TypeError"
    assert call(lambda: sys.exit(3)) == (False, ("RuntimeError", "SystemExit: 3"))
    assert run_there(b"no pickle", "other", (str(tmp_path),), {})[0] is False


def test_without_a_cluster_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(BadInput, match=r"agent.run_on=cluster needs a Ray cluster, and none runs here"):
        dry_run(compose("needle", ["agent.run_on=cluster"]), Console(quiet=True))
