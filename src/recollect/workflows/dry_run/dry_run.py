"""`recollect train --dry-run`: check everything that a run needs and say what it will take. Nothing is started."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch

from recollect.agents.find import find_agent
from recollect.agents.window import check_window
from recollect.algos.chosen import check_algorithm
from recollect.chat import TOOL_PARSERS, Renderer
from recollect.chat.text_calls import SEARCH_TOOLS
from recollect.config import Config
from recollect.config.reward_terms import parse
from recollect.config.roles import bindings, roles_of
from recollect.config.servers import served
from recollect.config.staleness import goes_on
from recollect.config.startup_messages import startup_messages
from recollect.engine.attention_check import fit_of
from recollect.models.checkpoints import pin_models, problem
from recollect.models.device import pick_device
from recollect.models.load import context_window, load_config, load_renderer, load_tokenizer, model_path
from recollect.models.scratch_models import SCRATCH
from recollect.policies.endpoint import Endpoint
from recollect.registries import AGENTS, TOOLS
from recollect.retrieval.corpus import MADE_UP_CORPUS, files_of
from recollect.retrieval.embedding_check import check_embedding
from recollect.rewards.before_run import check_reward
from recollect.runs.directory import RunDirectory
from recollect.runs.trackers.chosen_trackers import trackers_of
from recollect.runtime.console import Console
from recollect.runtime.plugins import find
from recollect.sandbox.box import open_box
from recollect.sources.task_stream import TaskStream, held_out
from recollect.tools.mcp import ToolServer
from recollect.training.rl.validate import check_validation
from recollect.training.sft.sources import check_source
from recollect.types import BadInput, Task
from recollect.workflows.dry_run.nodes_layout import nodes_layout, rows, work_cpus
from recollect.workflows.dry_run.predict import Need, TokenEstimate, memory, tokens
from recollect.workflows.dry_run.ranks_layout import RanksLayout, ranks_layout, refuse_too_large
from recollect.workflows.dry_run.run_time import run_time
from recollect.workflows.dry_run.server_layout import server_needs

BOXED = {"code_reward"}  # rewards that run what the model writes


def dry_run(cfg: Config, console: Console) -> dict[str, Any]:
    """Check files, model, names and the run directory; print and return what a step takes. Raises BadInput."""
    cfg = deepcopy(cfg)
    pin_models(cfg, console.say)
    pick_device(cfg.trainer.device)
    _names(cfg)
    programs = _runs_programs(cfg)
    if programs and cfg.agent.run_on == "driver":
        open_box(cfg.sandbox).close()
    stream, val = TaskStream(cfg, console.say), held_out(cfg)
    steps = cfg.trainer.total_training_steps = stream.steps()
    check_validation(cfg, val)
    run = RunDirectory.usable(cfg)
    _resume(cfg)
    _packages(cfg)
    _searched(cfg)
    check_embedding(cfg)
    _fixed(cfg)
    tasks = [*stream.take(0), *stream.rows]
    check_reward(cfg, [*tasks, *val], console.say)
    if cfg.sft.steps > 0 and not cfg.data.offline_files:
        check_source(cfg)
    renderer = _model(cfg, [*tasks, *val])
    made = tokens(cfg, tasks, renderer)
    needs = memory(cfg, made)
    ranks = ranks_layout(cfg, needs)
    found = _summary(cfg, run, steps, len(stream.rows), len(val), made, needs)
    servers = server_needs(cfg) if served(cfg.actor_rollout_ref.rollout) else None
    shares = nodes_layout(cfg, ranks, servers)
    if ranks is not None:
        refuse_too_large(cfg, ranks, needs, _memory_here(cfg), 0 if servers is None else servers.here)
    found["work_cpus"] = work_cpus(cfg, programs)
    found["servers"] = None if servers is None else asdict(servers)
    if shares:
        found["nodes"] = [asdict(share) for share in shares]
    if ranks is not None:
        found |= {"ranks": ranks.summary(), "memory_total": ranks.total}
    here = not served(cfg.actor_rollout_ref.rollout)  # how fast servers sample is not known before they run
    time = run_time(cfg, steps, made, val, renderer) if here else None
    found["seconds"] = time and time.row()
    _show(cfg, found, needs, console, ranks)
    if shares and not console.quiet:
        console.table(
            "Nodes of the Ray cluster; Ray may choose others", ("", "at", "runs", "memory"), rows(shares, size)
        )
    return found


def _names(cfg: Config) -> None:
    """Agent, parser, tools, estimator, loss and trackers by name, as a run would find them."""
    agent = cfg.agent
    check_algorithm(cfg)
    trackers_of(cfg.trainer.logger)
    find_agent(agent.agent_type)
    if agent.tool_parser is not None:
        find(agent.tool_parser, TOOL_PARSERS, "agent.tool_parser")
    for tool in agent.tools:
        if tool.startswith("mcp:"):
            ToolServer(tool, "agent.tools").close()  # a server that does not start now would not start in the run
        elif tool not in TOOLS:
            find(tool, {}, "agent.tools")


def _runs_programs(cfg: Config) -> bool:
    """Whether a sandbox has to be made: the run needs one, or the settings name a method."""
    agent = cfg.agent
    rewards = {term.name for term in parse(agent.reward_name)}
    tools = [TOOLS[name] for name in agent.tools if name in TOOLS]
    programs = AGENTS.knows(agent.agent_type, "runs_programs") or any(t.sandboxed for t in tools) or BOXED & rewards
    return bool(programs) or cfg.sandbox.isolation != "auto"


def _resume(cfg: Config) -> None:
    path = cfg.trainer.resume_from_path
    if not path:
        return
    folder = Path(path).expanduser()
    if not (folder / "checkpoints").is_dir() and not (folder / "trainer_state.json").is_file():
        raise BadInput(f"trainer.resume_from_path={path}: there is no checkpoint")


def _packages(cfg: Config) -> None:
    ranks = cfg.actor_rollout_ref.model.lora_rank, cfg.critic.model.lora_rank
    if any(ranks) and find_spec("peft") is None:
        raise BadInput("lora_rank needs the package peft, which is not installed: pip install 'recollect-rl[lora]'")


def _searched(cfg: Config) -> None:
    """Check that what tools search is there: the files of the corpus, and the service."""
    address, corpus = cfg.search.endpoint, cfg.search.corpus
    if not set(SEARCH_TOOLS) & set(cfg.agent.tools):
        return
    if corpus and corpus != MADE_UP_CORPUS:
        files_of(corpus)
    if not address:
        return
    parts = urlsplit(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), 5).close()
    except OSError as error:
        raise BadInput(f"search.endpoint={address} does not answer: {error}") from None


def _model(cfg: Config, tasks: Sequence[Task]) -> Renderer:
    """The renderer of the model, after checks of its configuration, weights, tokenizer and window."""
    path = cfg.actor_rollout_ref.model.path
    folder = None if path in SCRATCH else Path(model_path(path))
    if folder and folder.is_dir() and (wrong := problem(folder)):
        raise BadInput(f"{path} is not a whole model: {wrong}")
    renderer = load_renderer(path, cfg.agent.template)
    question = max((t.question for t in tasks), key=len, default="")
    config = load_config(path)
    check_window(cfg, renderer, context_window(config), question)
    fit_of(config)
    return renderer


def _summary(
    cfg: Config, run: RunDirectory, steps: int, training: int, val: int, made: TokenEstimate, needs: Sequence[Need]
) -> dict[str, Any]:
    batch, actor, ahead = cfg.data.train_batch_size, cfg.actor_rollout_ref.actor, cfg.trainer.max_staleness
    return {
        "run": str(run.path),
        "steps": steps,
        "sampling_ahead": {"max_staleness": ahead, "overlaps": goes_on(cfg)},
        "updates_per_step": batch // (actor.ppo_mini_batch_size or batch) * actor.ppo_epochs,
        "training_tasks": training or None,
        "held_out_tasks": val,
        "turns": made.turns,
        "tokens_per_step": made.per_step(cfg),
        "longest_turn": made.longest,
        "memory": {n.part: n.total for n in needs},
        "memory_total": sum(n.total for n in needs),
        "attention": "fast" if fit_of(load_config(cfg.actor_rollout_ref.model.path)).fast else "plain",
        "roles": {role: _plays(cfg, role)[0] for role in roles_of(cfg) or ("*",)},
        "reward": cfg.agent.reward_name,
    }


def _show(
    cfg: Config, found: dict[str, Any], needs: Sequence[Need], console: Console, ranks: RanksLayout | None
) -> None:
    if console.quiet:
        print(json.dumps(found))
        return
    per_step, rollout = found["tokens_per_step"], cfg.actor_rollout_ref.rollout
    spec = AGENTS.of(cfg.agent.agent_type)
    known = cfg.agent.agent_type in AGENTS or (spec and spec.tokens)
    own = "" if known else " at least (an agent of your own; one is assumed)"
    most = "at most " if spec and spec.uses_tools else ""
    data = f"{found['training_tasks']:,} training tasks" if found["training_tasks"] else "made-up documents"
    rows = [
        ("run", found["run"]),
        ("data", f"{data}, {found['held_out_tasks']:,} held out"),
        ("steps", f"{found['steps']:,}, updates in each: {found['updates_per_step']}"),
        (
            "per step",
            f"{cfg.data.train_batch_size} tasks × {rollout.n} samples = {per_step['trajectories']:,} trajectories",
        ),
        ("turns", f"{most}{found['turns']:.1f} per trajectory{own}"),
        ("prompts", f"about {per_step['prompt']:,} tokens per step; what samples of a task share is computed once"),
        ("sampled", f"at most {per_step['sampled']:,} tokens per step; the longest turn has {found['longest_turn']:,}"),
    ]
    if took := found["seconds"]:
        rows.append(("time here" if ranks is None else "time, one process", _told(took, found["steps"])))
    console.table("What a step takes", ("", ""), rows)
    console.table("Who plays what", ("role", "bound to"), list(_bindings(cfg)))
    header = ("part", "bound to", "weights", "gradients", "moments", "cache")
    table = [(n.part, n.bound_to, *map(size, (n.weights, n.gradients, n.moments, n.cache))) for n in needs]
    total = found["memory_total"]
    console.table(f"Memory, without activations: {size(total)}", header, table)
    if (servers := found["servers"]) is not None:
        cache = size(servers["cache"]) if servers["cache"] else "the rest of its share"
        each = size(servers["program"]), size(servers["weights"]), cache
        listed = [(f"server {i}", at, *each) for i, at in enumerate(servers["where"])]
        console.table("vLLM servers", ("", "at", "program", "weights", "cache"), listed)
        console.say(f"weights: {size(servers['sync'])} at each step, {servers['way']}")
        if servers["asleep"]:
            console.say(f"weights of servers that sleep: {size(servers['asleep'])} of host memory")
        if servers["note"]:
            console.say(servers["note"])
    if ranks is not None:
        console.table("Who trains", ("who", "where", "holds", "memory"), ranks.rows(size))
    if found["work_cpus"] is not None:
        console.say(f"tools and rewards: on {found['work_cpus']:g} CPUs of the Ray cluster, beside ranks and servers")
    plain = fit_of(load_config(cfg.actor_rollout_ref.model.path)).note
    for line in [*([plain] if plain else []), *startup_messages(cfg), *_warnings(cfg, total)]:
        console.say(line)
    run = RunDirectory.of(cfg)
    if run.moves_aside(cfg):
        console.say(f"trainer.resume_mode=disable: the run in {run.path} would move to {run.aside()}")
    console.say("everything is there; nothing was started")


def _told(took: dict[str, float], steps: int) -> str:
    """The time of a run in words."""
    parts = f"rollout {duration(took['rollout'])}, update {duration(took['update'])}"
    said = [f"about {duration(took['step'])} a step ({parts})"]
    said.append(f"{duration(took['steps'])} for {steps:,} steps" if steps else "no steps")
    if took.get("sft"):
        said.append(f"SFT {duration(took['sft'])}")
    if took.get("evaluation"):
        said.append(f"evaluations {duration(took['evaluation'])}")
    left_out = [name for part, name in (("sft", "SFT"), ("evaluation", "evaluation")) if part not in took]
    said.append(f"{duration(took['total'])} {'without ' + ' and '.join(left_out) if left_out else 'in all'}")
    return "; ".join(said)


def _bindings(cfg: Config) -> Iterator[tuple[str, str]]:
    for role in roles_of(cfg) or ("*",):
        yield role, ", ".join(_plays(cfg, role))
    if cfg.agent.tools:
        yield "tools", ", ".join(cfg.agent.tools)
    at_once = "one after another" if cfg.reward_model.reward_manager == "naive" else "many at once"
    yield "reward", f"{cfg.agent.reward_name}, {at_once}"


def _plays(cfg: Config, role: str) -> tuple[str, str]:
    """The model that plays a role, and how."""
    own = "sampled by the engine of this process"
    bound = bindings(cfg).get(role)
    if bound is None or bound.kind == "trainable":
        by = "sampled by vLLM servers" if served(cfg.actor_rollout_ref.rollout) else own
        return cfg.actor_rollout_ref.model.path, f"TRAINABLE: {by}, trained with {cfg.algorithm.adv_estimator}"
    how = {"frozen": own, "endpoint": "an outside server"}
    return bound.where, f"FIXED: {how.get(bound.kind, 'a server that recollect starts')}, not trained"


def _fixed(cfg: Config) -> None:
    """Check that the models of fixed roles are there and that outside servers answer."""
    for role, bound in bindings(cfg).items():
        if bound.kind in ("frozen", "serve") and bound.where not in SCRATCH:
            load_tokenizer(bound.where, cfg.agent.template)
            fit_of(load_config(bound.where))
        if bound.kind == "endpoint":
            rollout = cfg.actor_rollout_ref.rollout
            endpoint = Endpoint(bound.where, rollout.fixed_model_name, key_env=rollout.fixed_model_key_env)
            try:
                endpoint.check()
            except BadInput as error:
                raise BadInput(f"roles.{role}: {error}") from None
            finally:
                endpoint.close()


def _warnings(cfg: Config, need: int) -> Iterator[str]:
    for name in cfg.trainer.logger:
        if name not in ("console", "jsonl") and find_spec(name) is None:
            yield f"trainer.logger: {name} is not installed; the run goes on without it"
    have = _memory_here(cfg)
    if need > have:
        yield f"this is more than the {size(have)} of {pick_device(cfg.trainer.device)} here"


def _memory_here(cfg: Config) -> int:
    if pick_device(cfg.trainer.device) == "cuda":
        return int(torch.cuda.mem_get_info()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def duration(seconds: float) -> str:
    """Seconds for people."""
    for unit, scale in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * scale:
            return f"{seconds / scale:.1f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def size(count: int) -> str:
    """Bytes for people."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B" if count else "–"
