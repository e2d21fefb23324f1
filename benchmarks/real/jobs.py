"""The commands behind docs/results.md, as jobs that may run side by side: what each needs, and what it leaves.

A job is one `recollect` command. It starts as soon as the files that it needs are there, so an evaluation after SFT
runs while RL goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import recollect

RECIPE = Path(recollect.__file__).parent / "recipes" / "squad_stages.yaml"
SHARES = "75,5,20"  # train, tune, test
SHARES_OF_PROBLEMS = "80,6,14"
SQUAD = ("xquad_en_train.json", "nq_qed.json")
CLOSED = ("agent.agent_type=chat", "agent.tools=[]", "agent.system_prompt=Answer the question.")
SEVERAL_ON_A_GPU = (  # what one process may take of a GPU's memory
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.035",
    "actor_rollout_ref.rollout.prefix_cache_tokens=65536",
    "actor_rollout_ref.rollout.free_cache_engine=False",
)


@dataclass(frozen=True)
class Job:
    """One command."""

    part: str  # whose archive its results go into
    name: str
    words: tuple[str, ...]  # after `recollect`, or after `python` where the first one is a file
    needs: tuple[Path, ...] = ()  # files and folders that have to be there
    after: str = ""  # a job that has to have ended, if it is one of those that run
    gigabytes: float = 7.0  # of the GPU's memory, about
    until: float = 1.0  # share of all time after which it is asked to save and stop
    later: int = 0  # gives way to those with less
    cores: int = 0  # of its own; it leaves the GPU alone

    @property
    def trains(self) -> bool:
        return self.words[0] in ("train", "sft", "stages")


@dataclass(frozen=True)
class Places:
    """Where things are."""

    data: Path
    model: Path
    out: Path
    embedding: Path | None = None

    def file(self, name: str) -> str:
        return str(self.out / "data" / f"{name}.jsonl")


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    lengths: tuple[int, ...] = (4, 16, 64)  # paragraphs of test documents
    seeds: tuple[int, ...] = (0, 1, 2)
    sft: Mapping[str, int] | None = None  # updates, by job; else those of the recipe
    rl: Mapping[str, int] | None = None
    extra: tuple[str, ...] = ()  # settings of every job that trains
    cpu: tuple[str, ...] = ()  # settings of the variants for two cores
    tests: int = -1  # of each test file; -1: all

    def of(self, name: str) -> list[str]:
        """Settings of a job that trains."""
        steps = [f"sft.steps={self.sft[name]}"] if self.sft and name in self.sft else []
        steps += [f"trainer.total_training_steps={self.rl[name]}"] if self.rl and name in self.rl else []
        return [*steps, *self.extra]


def data_jobs(at: Places, sizes: Sizes) -> list[Job]:
    """The data files; each is made once."""
    squad, gsm8k = [str(at.data / name) for name in SQUAD], str(at.data / "gsm8k_train.jsonl")
    hotpotqa = str(at.data / "hotpotqa_sample.json")
    documents = lambda *counts: [word for n in counts for word in ("--paragraphs", str(n))]
    wanted: dict[str, list[str]] = {}
    for name, part, counts in (
        ("squad_train", "train", (4, 8)),
        ("squad_train_4", "train", (4,)),
        ("squad_tune", "tune", (4,)),
        ("squad_test", "test", sizes.lengths),
        ("squad_test_4", "test", (4,)),
        ("squad_train_2", "train", (2,)),
        ("squad_test_2", "test", (2,)),
        *((f"search_{part}", part, ()) for part in ("train", "tune", "test")),
    ):
        wanted[name] = ["squad", *squad, at.file(name), *documents(*counts), "--split", part, "--shares", SHARES]
    for part in ("train", "tune", "test"):
        name = f"gsm8k_{part}"
        wanted[name] = ["gsm8k", gsm8k, at.file(name), "--split", part, "--shares", SHARES_OF_PROBLEMS]
    wanted["corpus"] = ["passages", *squad, at.file("corpus")]
    wanted["hotpotqa"] = ["hotpotqa", hotpotqa, at.file("hotpotqa")]
    wanted["hotpotqa_corpus"] = ["passages", hotpotqa, at.file("hotpotqa_corpus")]
    return [Job("data", name, ("data", *words), cores=1) for name, words in wanted.items()]


def all_jobs(at: Places, sizes: Sizes) -> list[Job]:
    """Every job of the four recipes, the most important first."""
    parts = memory_jobs, gsm8k_jobs, search_jobs, stages_jobs, cpu_jobs
    return sorted((job for make in parts for job in make(at, sizes)), key=lambda job: job.later)


def memory_jobs(at: Places, sizes: Sizes) -> list[Job]:
    """squad_memory with three seeds; the untrained model; `concat` and `rag`, untrained and after SFT."""
    part, test = "memory", [f"data.val_files={at.file('squad_test')}", f"data.val_max_samples={sizes.tests}"]
    base = [f"actor_rollout_ref.model.path={at.model}", most_tokens(16384)]
    base += [f"data.train_files={at.file('squad_train')}", f"data.val_files={at.file('squad_tune')}"]
    jobs = []
    for seed in sizes.seeds:
        name, run = f"memory-{seed}", at.out / f"memory-{seed}"
        own = [f"trainer.seed={seed}", f"trainer.default_local_dir={run}", "trainer.val_before_train=False"]
        words = ("train", "squad_memory", *base, *own, *sizes.of("memory"))
        jobs.append(Job(part, name, words, gigabytes=12, until=0.72))
        jobs += trained(part, name, run, test, at)
    words = ("eval", str(at.model), "squad_memory", *test, *SEVERAL_ON_A_GPU, "--out", str(at.out / "memory-base"))
    jobs.append(Job(part, "memory-base", words, later=3))
    for agent in ("concat", "rag"):
        how = [*test, f"agent.agent_type={agent}", "actor_rollout_ref.rollout.max_num_seqs=64"]  # long prompts
        words = ("eval", str(at.model), "squad_memory", *how, *SEVERAL_ON_A_GPU, "--out", str(at.out / f"{agent}-base"))
        jobs.append(Job(part, f"{agent}-base", words, gigabytes=10, later=3))
        run = at.out / f"{agent}-sft"
        own = [f"agent.agent_type={agent}", f"trainer.default_local_dir={run}", "trainer.seed=0"]
        own += [f"data.train_files={at.file('squad_train_4')}", most_tokens(16384)] if agent == "concat" else []
        words = ("sft", "squad_memory", *base[:3], *own, *sizes.of(agent))
        jobs.append(Job(part, f"{agent}-sft", words, gigabytes=16 if agent == "concat" else 12, until=0.7, later=1))
        jobs.append(evaluation(part, agent, run, f"{agent}-sft", run / "model", how, at, 10))
    return jobs


def gsm8k_jobs(at: Places, sizes: Sizes) -> list[Job]:
    """gsm8k_tools with and without its calculator, and the untrained model."""
    part, test = "gsm8k", [f"data.val_files={at.file('gsm8k_test')}", f"data.val_max_samples={sizes.tests}"]
    base = [f"actor_rollout_ref.model.path={at.model}", f"data.val_files={at.file('gsm8k_tune')}"]
    base += [f"data.train_files={at.file('gsm8k_train')}", "trainer.seed=0", "trainer.val_before_train=False"]
    base += [most_tokens(16384), "actor_rollout_ref.rollout.max_num_seqs=256"]
    jobs = []
    for name, how in (("gsm8k", ()), ("gsm8k-none", ("tools=none",))):
        run = at.out / name
        words = ("train", "gsm8k_tools", *how, *base, f"trainer.default_local_dir={run}", *sizes.of(name))
        jobs.append(Job(part, name, words, gigabytes=12, until=0.72, later=len(how)))
        jobs += trained(part, name, run, test, at)
    words = ("eval", str(at.model), "gsm8k_tools", *test, *SEVERAL_ON_A_GPU, "--out", str(at.out / "gsm8k-base"))
    return [*jobs, Job(part, "gsm8k-base", words, gigabytes=10, later=3)]


def search_jobs(at: Places, sizes: Sizes) -> list[Job]:
    """squad_search with BM25 and dense search, one fixed search, and no search; recall; HotpotQA's two hops."""
    part, jobs, files = "search", [], {"test": at.file("search_test"), "corpus": at.file("corpus")}
    base = [f"actor_rollout_ref.model.path={at.model}", "trainer.seed=0", f"search.corpus={files['corpus']}"]
    base += [f"data.train_files={at.file('search_train')}", f"data.val_files={at.file('search_tune')}"]
    base += [most_tokens(16384), "actor_rollout_ref.rollout.max_num_seqs=256"]
    test = [f"data.val_files={files['test']}", f"data.val_max_samples={sizes.tests}"]
    recall = str(Path(__file__).with_name("recall.py"))
    for method in ("bm25", "dense") if at.embedding is not None else ("bm25",):
        meaning = [str(at.embedding)] if method == "dense" else []
        how = [f"search.method={method}", f"search.cache_dir={at.out / 'index' / method}"]
        how += [f"search.embedding_model={folder}" for folder in meaning]
        hops = [f"data.val_files={at.file('hotpotqa')}", f"search.corpus={at.file('hotpotqa_corpus')}"]
        hops += [f"search.cache_dir={at.out / 'index' / f'{method}-hotpotqa'}"]
        name, once, dense = f"search-{method}", f"once-{method}", method == "dense"
        run, fixed = at.out / name, at.out / once
        own = [*base, *how, f"trainer.default_local_dir={run}", "trainer.val_before_train=False", *sizes.of("search")]
        jobs.append(Job(part, name, ("train", "squad_search", *own), gigabytes=13, until=0.72, later=2 * dense))
        jobs += trained(part, name, run, test, at)
        jobs.append(evaluation(part, f"{name}-hotpotqa", run, name, run / "checkpoints", hops, at, later=2))
        own = [*base, *how, "agent.agent_type=search_once", f"trainer.default_local_dir={fixed}", *sizes.of("once")]
        jobs.append(Job(part, once, ("sft", "squad_search", *own), gigabytes=12, until=0.7, later=2))
        jobs.append(evaluation(part, f"{once}-test", fixed, once, fixed / "model", test, at))
        jobs.append(evaluation(part, f"{once}-hotpotqa", fixed, once, fixed / "model", hops, at, later=2))
        for what, corpus in (("search_test", "corpus"), ("hotpotqa", "hotpotqa_corpus")):
            found = f"recall-{method}-{what}"
            words = (recall, at.file(what), at.file(corpus), method, str(at.out / f"{found}.json"), *meaning)
            jobs.append(Job(part, found, words, cores=1))
    run = at.out / "closed"
    own = [*base, *CLOSED, f"trainer.default_local_dir={run}", *sizes.of("closed")]
    jobs.append(Job(part, "closed", ("sft", "squad_search", *own), gigabytes=6, until=0.7, later=2))
    return [*jobs, evaluation(part, "closed-test", run, "closed", run / "model", test, at)]


def stages_jobs(at: Places, sizes: Sizes) -> list[Job]:
    """squad_stages, in turns and end to end, from what seed 0 of squad_memory was after SFT."""
    part, start = "stages", at.out / "memory-0" / "checkpoints" / "step-0"
    test = [f"data.val_files={at.file('squad_test_4')}", f"data.val_max_samples={sizes.tests}"]
    base = [f"actor_rollout_ref.model.path={start}", f"data.train_files={at.file('squad_train_4')}", "sft.steps=0"]
    base += [f"data.val_files={at.file('squad_tune')}", "trainer.seed=0"]
    base += [most_tokens(16384)]
    steps = {name: (sizes.rl or {}).get(f"stage-{name}", default) for name, default in (("memory", 20), ("qa", 14))}
    plans = {
        "turns": [{"name": name, "role": name, "steps": count} for name, count in steps.items()],
        "both": [{"name": "both", "role": list(steps), "steps": sum(steps.values())}],
    }
    jobs, place = [], {name: at.out / f"stages-{name}" for name in plans}
    for name, plan in plans.items():
        recipe = stages_recipe(at, name, plan)
        words = ("stages", recipe, *base, f"trainer.default_local_dir={place[name]}", *sizes.extra)
        jobs.append(Job(part, f"stages-{name}", words, (start,), "", 12, 0.78))
    one, two = place["turns"] / "1-memory" / "checkpoints", place["turns"] / "2-qa" / "checkpoints"
    for name, needs, after, roles in (
        ("stages-1", one / f"step-{steps['memory']}", "", {"memory": one.parent, "qa": start}),
        ("stages-2", two, "stages-turns", {"memory": one.parent, "qa": two.parent}),
    ):
        words = [word for role, where in roles.items() for word in ("--role", f"{role}={where}")]
        words = ["eval", *test, *words]
        jobs.append(Job(part, name, (*words, "--out", str(at.out / name)), (needs,), after))
    run = place["both"] / "1-both"
    return [*jobs, evaluation(part, "stages-end-to-end", run, "stages-both", run / "checkpoints", test, at)]


def cpu_jobs(at: Places, sizes: Sizes) -> list[Job]:
    """The variants for two cores, as a user runs them."""
    corpus = [f"search.corpus={at.file('corpus')}", f"search.cache_dir={at.out / 'index' / 'cpu'}"]
    jobs = []
    for recipe, train, test, more in (
        ("squad_memory", "squad_train_2", "squad_test_2", []),
        ("gsm8k_tools", "gsm8k_train", "gsm8k_test", []),
        ("squad_search", "search_train", "search_test", corpus),
        ("squad_stages", "squad_train_2", "squad_test_2", []),
    ):
        name, kind = f"cpu-{recipe}", "stages" if recipe == "squad_stages" else "train"
        words = [kind, recipe, "size=cpu", f"actor_rollout_ref.model.path={at.model}", "trainer.device=cpu", *more]
        words += [f"data.train_files={at.file(train)}", f"data.val_files={at.file(test)}"]
        words += [f"trainer.default_local_dir={at.out / name}", *sizes.cpu]
        jobs.append(Job("cpu", name, tuple(words), cores=2, until=0.97))
    return jobs


def stages_recipe(at: Places, name: str, plan: list[dict[str, Any]]) -> str:
    """squad_stages with a plan of its own, so that turns and end to end run side by side."""
    recipe = yaml.safe_load(RECIPE.read_text()) | {"stages": plan, "end_to_end": False}
    file = at.out / "data" / f"stages_{name}.yaml"
    file.write_text(yaml.safe_dump(recipe, sort_keys=False))
    return str(file)


def trained(part: str, name: str, run: Path, test: list[str], at: Places) -> list[Job]:
    """The evaluations of a run with SFT and RL."""
    first = run / "checkpoints" / "step-0"
    words = ("eval", str(first), *test, "--out", str(at.out / f"{name}-sft"))
    after = Job(part, f"{name}-sft", words, (first,))
    return [after, evaluation(part, f"{name}-rl", run, name, run / "checkpoints", test, at)]


def evaluation(
    part: str,
    name: str,
    run: Path,
    after: str,
    needs: Path,
    test: list[str],
    at: Places,
    gigabytes: float = 7,
    later: int = 0,
) -> Job:
    """An evaluation of what a run has become, once it has ended."""
    words = ("eval", str(run), *test, "--out", str(at.out / name))
    return Job(part, name, words, (needs,), after, gigabytes, later=later)


def most_tokens(count: int) -> str:
    """Of a micro-batch: SFT's batches fit into one."""
    return f"actor_rollout_ref.actor.ppo_max_token_len_per_gpu={count}"
