"""The agent: its loop, its memory, its tools."""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect.chat import TEMPLATES, TOOL_PARSERS
from recollect.config.schema.bounds import (
    address,
    address_or_model,
    choice,
    each_host,
    must,
    not_negative,
    positive,
    share,
)


@dataclass
class MemoryLimits:
    """Limits of the recurrent memory agent, in tokens."""

    chunk_size: int = positive(5000)  # document tokens read per turn
    max_prompt_length: int = positive(1024)  # longest question; a longer one is treated as data.truncation says
    max_memorization_length: int = positive(1024)  # longest memory
    max_final_response_length: int = positive(1024)  # longest answer turn
    max_chunks: int = not_negative(0)  # longer documents are cut in the centre; 0: read everything
    query_aware: bool = True  # False: the question is not shown while reading, only to answer
    split: str = choice("token", "sentence")  # where sections end; sentence: whole sentences only
    # chunk_first: samples of a task share the long part; memory_first: as in MemAgent
    layout: str = choice("chunk_first", "memory_first")
    style: str = choice("instruct", "plain")  # wording of the prompts; plain: for the embedded model


@dataclass
class RecurrentMemory:
    """The recurrent memory agent."""

    config: MemoryLimits = field(default_factory=MemoryLimits)


@dataclass
class Recurrent:
    """Recurrent agents."""

    enable: str | None = choice("memory", "null")  # memory: the recurrent agent; null: agent.agent_type decides alone
    memory: RecurrentMemory = field(default_factory=RecurrentMemory)


@dataclass
class Agent:
    """The agent loop and its reward. `agent.init_args.X` is the same key as `agent.X`."""

    use_agent: bool = True  # False: one plain question and answer, whatever agent_type says
    agent_type: str = "recurrent"  # a name of docs/agents.md, or module:function, or file.py:function
    model_name_or_path: str | None = None  # the agent's model; the same as actor_rollout_ref.model.path
    # chat template; default: the tokenizer's own
    template: str | None = choice(of=TEMPLATES, default=None, hint="without it the tokenizer's own is used")
    tools: list[str] = field(default_factory=list)  # tools by name; the agent of a domain, such as mhqa, has its own
    # the syntax of tool calls; default: that of the agent, or of the chat template
    tool_parser: str | None = choice(of=TOOL_PARSERS, default=None, own=True)
    system_prompt: str | None = None  # first message; tool agents may put {tools} in it
    # a JSON or YAML file with the agent's prompts (docs/agents.md); default: recollect's own
    prompts: str | None = None
    # who generates: the engine of this process
    backend: str = choice("async_verl", hint="the engine of this process generates")
    max_turns: int = positive(10)  # generations per trajectory of a tool agent
    num_chains: int | None = None  # trajectories per task; the same as actor_rollout_ref.rollout.n
    # tokens of prompt and completion in a tool agent; default: the window
    max_context_length: int | None = positive(None)
    max_tokens_per_turn: int | None = None  # longest completion of a turn; default rollout.response_length
    reward_name: str = "boxed_em"  # a name of docs/rewards.md, module:function, file.py:function, or [a*0.8,b*0.2]
    # where functions of your own (tools, rewards) and sandboxed programs run: on this machine, or on CPUs of a Ray
    # cluster that ranks and servers leave free
    run_on: str = choice("driver", "cluster")
    max_concurrency: int = positive(1024)  # trajectories under way at once
    timeout_s: float = positive(600.0, infinite=True)  # deadline of one trajectory
    reward_timeout_s: float = positive(60.0, infinite=True)  # deadline of one reward call
    max_failure_rate: float = share(0.5)  # a step with a larger share of failed trajectories stops the run


@dataclass
class Gui:
    """The agent `gui`, which works a screen. Its steps are limited by agent.max_turns."""

    environment: str = "screen"  # screen (made up), browser, or module:function, or file.py:function
    syntax: str = choice("ui_tars", "qwen")  # how its model writes actions: UI-TARS' calls, or Qwen's computer_use
    # what the numbers of a place are: pixels as the model's processor scales the picture, or thousandths of it
    coordinates: str = choice("pixels", "thousandths")
    history: int = positive(5)  # screenshots in a prompt; older ones are left out
    hosts: list[str] = each_host()  # what a browser's pages may load from besides this machine's files; empty: nothing


@dataclass
class Sandbox:
    """Where programs run that the model wrote. The limits of a call hold for all of its processes together."""

    isolation: str = choice("auto", "namespaces", "bubblewrap")  # auto: the strongest that works
    allow_unsafe: bool = False  # run with limits only where no isolation works, instead of refusing to run
    timeout_s: float = positive(10.0)  # wall time of a call
    cpu_s: float = positive(10.0)  # processor time of a call
    # memory of a call
    memory_mb: int = must(512, lambda mb: mb >= 64, " must be at least 64, which Python itself needs")
    disk_mb: int = positive(64)  # all files of a sandbox; they are kept in memory
    file_mb: int = positive(32)  # one file
    # processes and threads
    processes: int = must(32, lambda n: n >= 2, " must be at least 2, a shell and what it runs")
    output_kb: int = positive(1024)  # output of a call; a program that writes more is ended
    max_sessions: int = positive(256)  # sandboxes open at once; further trajectories wait for one
    site_packages: bool = True  # programs may import the packages that are installed beside recollect
    preload: list[str] = field(default_factory=list)  # modules that are imported once, before the first program
    read_only: list[str] = field(default_factory=list)  # files and folders of the host that programs may read


@dataclass
class Search:
    """What the tools `search` and `google_search` look in, and the embedding model of everything that searches.

    Keys are read from RECOLLECT_SEARCH_KEY (search service) and RECOLLECT_EMBEDDING_KEY (embedding service) alone.
    """

    corpus: str | None = None  # a folder of .txt and .md files, a .jsonl, .json, .parquet or .csv file, or made_up
    # how the corpus is searched; hybrid: both ways, by reciprocal ranks
    method: str = choice("bm25", "dense", "hybrid")
    embedding_model: str | None = None  # a sentence-transformers folder, module:function or http://…; default: MiniLM
    embedding_name: str | None = None  # the model that an embedding service is asked for; default: the first it lists
    top_k: int = positive(3)  # passages that a search gives
    max_length: int = positive(1000)  # longest passage that is shown, in characters
    endpoint: str | None = address()  # address of an HTTP search service; google_search asks it first
    endpoint_style: str = choice("json", "serper", "search_r1")  # the form of its requests and replies
    timeout_s: float = positive(20.0)  # deadline of one request
    cache_dir: str | None = None  # where indexes are kept; default RECOLLECT_CACHE or ~/.cache/recollect


@dataclass
class Judge:
    """The model behind the reward `judge`. Its key is read from OPENAI_API_KEY alone."""

    # an endpoint such as http://localhost:8000/v1, frozen:MODEL (the run loads it) or serve:MODEL (it serves it)
    url: str | None = address_or_model()
    model: str | None = None  # its model; default: the first that it lists
    # strict: an answer has to say what an accepted one says; lenient: the same topic, or a time close to it, will do
    wording: str = choice("strict", "lenient")
    cache: str | None = None  # a .jsonl file of verdicts, which later runs use again; default: of this process alone
    max_tokens: int = positive(256)  # longest reply; a model that reasons needs more
    timeout_s: float = positive(60.0)  # deadline of one call
    retries: int = not_negative(5)  # further tries after a connection error, 429 or 5xx
