"""The agent: its loop, its memory, its tools."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class MemoryLimits:
    """Limits of the recurrent memory agent, in tokens."""

    chunk_size: int = 5000  # document tokens read per turn
    max_prompt_length: int = 1024  # longest question; a longer one is treated as data.truncation says
    max_memorization_length: int = 1024  # longest memory
    max_final_response_length: int = 1024  # longest answer turn
    max_chunks: int = 0  # longer documents are cut in the centre; 0: read everything
    query_aware: bool = True  # False: the question is not shown while reading, only to answer
    split: str = "token"  # where sections end: token, or sentence (whole sentences only)
    layout: str = "chunk_first"  # chunk_first (samples of a task share the long part) or memory_first (MemAgent)
    style: str = "instruct"  # wording of the prompts: instruct, or plain (for the embedded model)


@dataclass
class RecurrentMemory:
    """The recurrent memory agent."""

    config: MemoryLimits = field(default_factory=MemoryLimits)


@dataclass
class Recurrent:
    """Recurrent agents."""

    enable: str | None = "memory"  # memory; null: agent.agent_type decides alone
    memory: RecurrentMemory = field(default_factory=RecurrentMemory)


@dataclass
class Agent:
    """The agent loop and its reward. `agent.init_args.X` is the same key as `agent.X`."""

    use_agent: bool = True  # False: one plain question and answer, whatever agent_type says
    agent_type: str = "recurrent"  # a name of docs/agents.md, or module:function, or file.py:function
    model_name_or_path: str | None = None  # the agent's model; the same as actor_rollout_ref.model.path
    template: str | None = None  # chat template: chatml, qwen2.5, qwen3, llama3 or plain; default: the tokenizer's own
    tools: list[str] = field(default_factory=list)  # tools by name; mhqa, video, math, swe and tau have their own
    tool_parser: str | None = None  # hermes, llama, react, code, search_r1, line, compact, or module:function
    system_prompt: str | None = None  # first message; tool agents may put {tools} in it
    backend: str = "async_verl"  # who generates: async_verl, the trainer's own engine
    max_turns: int = 10  # generations per trajectory of a tool agent
    num_chains: int | None = None  # trajectories per task; the same as actor_rollout_ref.rollout.n
    max_context_length: int | None = None  # tokens of prompt and completion in a tool agent; default: the window
    max_tokens_per_turn: int | None = None  # longest completion of a turn; default rollout.response_length
    reward_name: str = "boxed_em"  # a name of docs/rewards.md, module:function, file.py:function, or [a*0.8,b*0.2]
    max_concurrency: int = 1024  # trajectories under way at once
    timeout_s: float = 600.0  # deadline of one trajectory
    reward_timeout_s: float = 60.0  # deadline of one reward call
    max_failure_rate: float = 0.5  # a step with a larger share of failed trajectories stops the run


@dataclass
class Sandbox:
    """Where programs run that the model wrote. The limits of a call hold for all of its processes together."""

    isolation: str = "auto"  # auto (the strongest that works), namespaces or bubblewrap
    allow_unsafe: bool = False  # run with limits only where no isolation works, instead of refusing to run
    timeout_s: float = 10.0  # wall time of a call
    cpu_s: float = 10.0  # processor time of a call
    memory_mb: int = 512  # memory of a call
    disk_mb: int = 64  # all files of a sandbox; they are kept in memory
    file_mb: int = 32  # one file
    processes: int = 32  # processes and threads
    output_kb: int = 1024  # output of a call; a program that writes more is ended
    max_sessions: int = 256  # sandboxes open at once; further trajectories wait for one
    site_packages: bool = True  # programs may import the packages that are installed beside recollect
    preload: list[str] = field(default_factory=list)  # modules that are imported once, before the first program
    read_only: list[str] = field(default_factory=list)  # files and folders of the host that programs may read


@dataclass
class Search:
    """What the tools `search` and `google_search` look in, and the embedding model of everything that searches.

    Keys are read from RECOLLECT_SEARCH_KEY (search service) and RECOLLECT_EMBEDDING_KEY (embedding service) alone.
    """

    corpus: str | None = None  # a folder of .txt and .md files, a .jsonl, .json, .parquet or .csv file, or made_up
    method: str = "bm25"  # how the corpus is searched: bm25, dense or hybrid (both, by reciprocal ranks)
    embedding_model: str | None = None  # a sentence-transformers folder, module:function or http://…; default: MiniLM
    embedding_name: str | None = None  # the model that an embedding service is asked for; default: the first it lists
    top_k: int = 3  # passages that a search gives
    max_length: int = 1000  # longest passage that is shown, in characters
    endpoint: str | None = None  # address of an HTTP search service; google_search asks it first
    endpoint_style: str = "json"  # how it is asked: json, serper or search_r1
    timeout_s: float = 20.0  # deadline of one request
    cache_dir: str | None = None  # where indexes are kept; default RECOLLECT_CACHE or ~/.cache/recollect


@dataclass
class Judge:
    """The model behind the reward `judge`. Its key is read from OPENAI_API_KEY alone."""

    url: str | None = None  # an OpenAI-compatible endpoint, such as http://localhost:8000/v1
    model: str | None = None  # its model; default: the first that it lists
    max_tokens: int = 256  # longest reply; a model that reasons needs more
    timeout_s: float = 60.0  # deadline of one call
    retries: int = 5  # further tries after a connection error, 429 or 5xx
