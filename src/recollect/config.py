"""The typed configuration tree. Key names are those that users of verl, MemAgent and AgentFly already know.

Every key here takes effect. ``docs/config.md`` is generated from this file: the comment after a field is its meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Optim:
    """The optimizer of a trained model."""

    name: str = "adamw"  # adamw, or muon (Muon on matrices, AdamW on the rest)
    lr: float = 1e-6  # peak learning rate
    weight_decay: float = 0.01  # decoupled weight decay
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])  # of AdamW
    lr_warmup_steps: int = 0  # updates of linear warm-up
    lr_scheduler_type: str = "constant"  # after the warm-up: constant, linear or cosine
    min_lr_ratio: float = 0.0  # where linear and cosine end, as a share of lr


@dataclass
class Model:
    """The model that is trained."""

    path: str = "tiny"  # a folder, a hub name, `tiny` (embedded base), `scratch` or `scratch_small` (random weights)
    enable_gradient_checkpointing: bool = False  # recompute activations in the backward pass to save memory
    use_remove_padding: bool = True  # pack sequences and share their prefixes; False: one sequence at a time
    lora_rank: int = 0  # train a LoRA adapter of this rank instead of all weights; 0: all weights
    lora_alpha: float = 16.0  # scale of the adapter: alpha / rank
    target_modules: list[str] = field(default_factory=lambda: ["all-linear"])  # modules that get an adapter
    lora_dropout: float = 0.0  # dropout inside the adapter, in updates only


@dataclass
class Offload:
    """What waits in host memory while it is not needed, and how many devices share the weights."""

    param_offload: bool = False  # weights wait in host memory while they are not used; on a CPU they are there already
    optimizer_offload: bool = False  # moments wait in host memory between updates; on a CPU they are there already
    fsdp_size: int = -1  # devices that share the weights, at most those of the run; -1: all of them


@dataclass
class RefOffload:
    """Where the reference's weights wait."""

    param_offload: bool = False  # in host memory while they are not used; on a CPU they are there already


@dataclass
class PolicyLoss:
    """Which policy loss."""

    loss_mode: str = "ppo"  # ppo (also called vanilla), gspo, cispo, dr_grpo or reinforce


@dataclass
class Actor:
    """How the policy is updated."""

    optim: Optim = field(default_factory=Optim)
    ppo_mini_batch_size: int = 0  # prompts per update; 0: all of data.train_batch_size
    ppo_epochs: int = 1  # passes over each batch
    ppo_micro_batch_size_per_gpu: int | None = None  # most sequences per micro-batch; default: no such limit
    use_dynamic_bsz: bool = True  # cut micro-batches by tokens (ppo_max_token_len_per_gpu); False: by sequences alone
    ppo_max_token_len_per_gpu: int = 16384  # tokens per micro-batch, shared prefixes counted once
    ulysses_sequence_parallel_size: int = 1  # GPUs that share a sequence; only 1 here
    fsdp_config: Offload = field(default_factory=Offload)
    policy_loss: PolicyLoss = field(default_factory=PolicyLoss)
    clip_ratio: float = 0.2  # PPO clip range, both sides
    clip_ratio_low: float | None = None  # lower side alone; default clip_ratio
    clip_ratio_high: float | None = None  # upper side alone; default clip_ratio
    clip_ratio_c: float = 3.0  # dual clip: bound on the loss of tokens with negative advantage
    loss_agg_mode: str = "token-mean"  # token-mean, trajectory-mean or seq-mean-token-{sum,mean,sum-norm}
    loss_scale_factor: float | None = (
        None  # divisor of seq-mean-token-sum-norm; default: the longest completion allowed
    )
    use_kl_loss: bool = False  # add a divergence from the reference policy to the loss
    kl_loss_coef: float = 0.001  # its weight
    kl_loss_type: str = "low_var_kl"  # its estimator: low_var_kl, kl, mse, abs or full (exact over the vocabulary)
    entropy_coeff: float = 0.0  # weight of the entropy bonus
    grad_clip: float = 1.0  # largest gradient norm
    dtype: str = "auto"  # compute type of the update: auto, float32 or bfloat16; weights are float32


@dataclass
class ValSampling:
    """How validation samples."""

    n: int = 1  # samples per task
    do_sample: bool = False  # False: greedy
    temperature: float = 1.0  # divides the logits
    top_p: float = 1.0  # keep the most likely tokens up to this probability; 1: all
    top_k: int = -1  # keep so many most likely tokens; -1: all


@dataclass
class Rollout:
    """How the policy is sampled."""

    name: str = "engine"  # engine (in this process); vllm and hf are accepted and sampled by the same engine
    n: int = 8  # samples per task
    temperature: float = 1.0  # divides the logits
    top_p: float = 1.0  # keep the most likely tokens up to this probability; 1: all
    top_k: int = -1  # keep so many most likely tokens; -1: all
    dtype: str = "auto"  # auto, float32 or bfloat16
    max_num_seqs: int = 256  # sequences decoded side by side
    response_length: int | None = None  # longest completion of a turn; default data.max_response_length
    max_num_batched_tokens: int = 8192  # prompt tokens read per engine step
    gpu_memory_utilization: float = 0.5  # share of the GPU's memory that sampling may fill; a CPU has no such limit
    tensor_model_parallel_size: int = 1  # GPUs that share the sampled model; only 1 here
    enforce_eager: bool = False  # True: never capture CUDA graphs; a CPU has none
    free_cache_engine: bool = True  # give the cache's memory back during updates
    log_prob_micro_batch_size_per_gpu: int | None = None  # most sequences per micro-batch of old log-probabilities
    log_prob_max_token_len_per_gpu: int = 32768  # tokens per micro-batch of old log-probabilities
    prefix_cache_tokens: int = 262144  # tokens of finished prompts kept for reuse
    val_kwargs: ValSampling = field(default_factory=ValSampling)


@dataclass
class Reference:
    """The reference policy of the KL term (the weights the run started from)."""

    log_prob_max_token_len_per_gpu: int = 32768  # tokens per micro-batch
    log_prob_micro_batch_size_per_gpu: int | None = None  # most sequences per micro-batch; default: no such limit
    fsdp_config: RefOffload = field(default_factory=RefOffload)


@dataclass
class ActorRolloutRef:
    """The trained policy: its model, its updates, its sampling, its reference."""

    model: Model = field(default_factory=Model)
    actor: Actor = field(default_factory=Actor)
    rollout: Rollout = field(default_factory=Rollout)
    ref: Reference = field(default_factory=Reference)


@dataclass
class KLControl:
    """The weight of the divergence in the reward."""

    type: str = "fixed"  # fixed, or adaptive (towards target_kl)
    kl_coef: float = 0.001  # weight, or first weight
    target_kl: float = 0.1  # adaptive: the divergence to hold
    horizon: float = 10000.0  # adaptive: trajectories over which the weight follows


@dataclass
class FilterGroups:
    """Dynamic sampling: groups without signal are replaced before the update."""

    enable: bool = False  # drop groups whose trajectories all score the same, and sample other tasks instead
    metric: str = "reward"  # what must differ within a group: reward (all of it), or a named part of the score
    max_num_gen_batches: int = 10  # most batches of tasks sampled for one step


@dataclass
class Algorithm:
    """From rewards to advantages."""

    adv_estimator: str = "grpo"  # gae, grpo, rloo, remax, reinforce_plus_plus, reinforce_plus_plus_baseline, opo or gpg
    gamma: float = 1.0  # discount per trained token (gae, remax, reinforce_plus_plus)
    lam: float = 1.0  # GAE's lambda
    group_by: str = "task"  # who is compared: trajectories of a task, or role (within a task, each role by itself)
    use_kl_in_reward: bool = False  # take a divergence from the reference policy off each token's reward
    kl_penalty: str = "kl"  # its estimator: kl, abs, mse, low_var_kl or full (exact over the vocabulary)
    kl_ctrl: KLControl = field(default_factory=KLControl)
    filter_groups: FilterGroups = field(default_factory=FilterGroups)
    rollout_is: str | None = None  # weigh the loss by learner/sampler probability: token or sequence; null: do not
    rollout_is_threshold: float = 2.0  # cap of that weight
    norm_adv_by_std_in_grpo: bool = True  # divide by the group's standard deviation
    grpo_use_adv: bool = True  # MemAgent's name for the same switch: False leaves the deviation out


@dataclass
class Needle:
    """The made-up documents of the recipe `needle` (used when data.train_files is empty)."""

    chunks: int = 4  # document length of training tasks, in sections
    facts_per_chunk: int = 6  # facts in a section
    hops: int = 1  # facts needed: 1, or 2 chained
    similar: float = 0.35  # share of training distractors one syllable away from the needed name
    val_similar: float = 0.15  # the same share in held-out documents
    start_chunks: int = 4  # documents grow from this many sections …
    grow_steps: int = 0  # … to `chunks` over this many steps (0: no curriculum)
    recall: float = 0.0  # share of the skill teacher's examples that repeat a whole section in another order


@dataclass
class Data:
    """Tasks."""

    train_files: list[str] = field(default_factory=list)  # json, jsonl or parquet; empty: made-up documents
    val_files: list[str] = field(default_factory=list)  # held-out tasks; empty with made-up documents: made up too
    train_batch_size: int = 16  # tasks per step
    val_batch_size: int | None = None  # validation tasks attempted side by side; default: all of them
    val_max_samples: int = -1  # validation tasks; -1: all of the files, or 256 made-up ones
    prompt_key: str = "question"  # field with the question; its default also finds `prompt`
    context_key: str = "context"  # field with the document
    answer_key: str = "answer"  # field with the accepted answer or answers
    shuffle: bool = True  # new seeded order each epoch
    max_prompt_length: int = 8192  # longest first prompt, in tokens; recurrent agents have limits of their own
    filter_overlong_prompts: bool = False  # leave out training tasks with a longer prompt
    truncation: str = "error"  # a longer prompt otherwise: error, or cut on the left, right or in the center (middle)
    max_response_length: int = 1024  # longest completion outside the recurrent agent
    needle: Needle = field(default_factory=Needle)


@dataclass
class MemoryLimits:
    """Limits of the recurrent memory agent, in tokens."""

    chunk_size: int = 5000  # document tokens read per turn
    max_prompt_length: int = 1024  # longest question
    max_memorization_length: int = 1024  # longest memory
    max_final_response_length: int = 1024  # longest answer turn
    max_chunks: int = 0  # longer documents are cut in the centre; 0: read everything
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
    agent_type: str = (
        "recurrent"  # recurrent, chat, hf, react, code, search_r1, or module:function, or file.py:function
    )
    model_name_or_path: str | None = None  # the agent's model; the same as actor_rollout_ref.model.path
    template: str | None = None  # chat template by name: chatml, qwen2.5 or qwen3; default: the tokenizer's own
    tools: list[str] = field(default_factory=list)  # tools by name
    tool_parser: str | None = None  # hermes, llama, react, code, search_r1, or module:function; default: by template
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
class CriticModel:
    """The value model: a language model's body with a head of one number."""

    path: str = ""  # a folder or hub name; empty: the actor's starting model
    share_actor: bool = False  # put the value head on the actor's own body instead of a model of its own
    enable_gradient_checkpointing: bool = False  # recompute activations in the backward pass to save memory
    lora_rank: int = 0  # train a LoRA adapter of this rank and the head; 0: all weights
    lora_alpha: float = 16.0  # scale of the adapter: alpha / rank
    target_modules: list[str] = field(default_factory=lambda: ["all-linear"])  # modules that get an adapter
    lora_dropout: float = 0.0  # dropout inside the adapter, in updates only


@dataclass
class Critic:
    """The value function of PPO with `algorithm.adv_estimator=gae`."""

    model: CriticModel = field(default_factory=CriticModel)
    optim: Optim = field(default_factory=lambda: Optim(lr=1e-5))
    ppo_mini_batch_size: int = 0  # prompts per update; 0: as the actor
    ppo_micro_batch_size_per_gpu: int | None = None  # most sequences per micro-batch; default: no such limit
    ppo_max_token_len_per_gpu: int = 32768  # tokens per micro-batch
    ppo_epochs: int | None = None  # passes over each batch; default: as the actor
    cliprange_value: float = 0.5  # how far a value may move from the old one without losing its gradient
    loss_agg_mode: str = "token-mean"  # as the actor's
    grad_clip: float = 1.0  # largest gradient norm
    fsdp_config: Offload = field(default_factory=Offload)


@dataclass
class RewardModel:
    """How rewards are computed."""

    reward_manager: str = "thread"  # thread (many at once), or naive (one after another)


@dataclass
class SFT:
    """Supervised training: before RL in `train` when steps > 0, or alone with `recollect sft`."""

    steps: int = 0  # updates; 0: none
    batch_size: int = 64  # sequences per update
    data: str = "expert"  # expert (the task's scripted expert), skill (the base model's teacher) or a run/jsonl
    min_reward: float = 0.0  # with stored trajectories: train on those that reached this reward
    workers: int = 0  # processes that prepare batches
    save_freq: int = 500  # updates between checkpoints; -1: only at the end
    export_dtype: str = "float32"  # type of the final `model` folder of `recollect sft`: float32 or bfloat16
    optim: Optim = field(default_factory=lambda: Optim(lr=1e-3, lr_warmup_steps=20, lr_scheduler_type="cosine"))


@dataclass
class Evaluation:
    """The final evaluation and report."""

    lengths: list[int] = field(default_factory=lambda: [1, 4, 16, 64, 256])  # multiples of the training length
    tasks: list[int] = field(default_factory=lambda: [256, 128, 64, 32, 16])  # held-out documents at each length


@dataclass
class Trainer:
    """The run."""

    project_name: str = "recollect"  # first part of the run directory
    experiment_name: str = "default"  # second part of the run directory
    default_local_dir: str = ""  # the run directory; default runs/<project_name>/<experiment_name>
    total_training_steps: int | None = None  # RL steps; 0: none; default: total_epochs over the data
    total_epochs: int = 1  # passes over the data when total_training_steps is not given
    logger: list[str] = field(default_factory=lambda: ["console"])  # and tensorboard, wandb, swanlab, mlflow, trackio
    nnodes: int = 1  # machines; only 1 here
    n_gpus_per_node: int = 1  # GPUs; only 1 here (0 or 1 on a CPU)
    critic_warmup: int = 0  # first steps in which only the critic learns
    save_freq: int = 10  # steps between checkpoints; -1: only at the end
    test_freq: int = -1  # steps between validations; -1: only before and after
    val_before_train: bool = True  # measure held-out success before training
    val_only: bool = False  # only measure held-out success
    best_metric: str | None = None  # keep the checkpoint with the largest value of this metric, as `best`
    patience: int = 0  # stop after so many validations without a better best_metric; 0: never
    max_ckpt_to_keep: int = 3  # older checkpoints are deleted
    resume_mode: str = "auto"  # auto (from the newest checkpoint), disable (refuse a used directory) or resume_path
    resume_from_path: str | None = None  # with resume_path: the checkpoint to go on from
    default_hdfs_dir: str | None = None  # remote copy of checkpoints; only null here
    seed: int = 0  # of everything
    device: str = "auto"  # auto, cpu or cuda
    threads: int = 0  # CPU threads; 0: chosen from the model's size


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
    """What the tools `search` and `google_search` look in. A service's key is read from RECOLLECT_SEARCH_KEY alone."""

    corpus: str | None = None  # a folder of .txt and .md files, or a .jsonl, .json, .parquet or .csv file of passages
    method: str = "bm25"  # how the corpus is searched: bm25, dense or hybrid (both, by reciprocal ranks)
    embedding_model: str | None = None  # dense: a sentence-transformers model or module:function; default: MiniLM
    top_k: int = 3  # passages that a search gives
    max_length: int = 1000  # longest passage that is shown, in characters
    endpoint: str | None = None  # address of an HTTP search service; google_search asks it first
    endpoint_style: str = "json"  # how it is asked: json, serper or search_r1
    timeout_s: float = 20.0  # deadline of one request
    cache_dir: str | None = None  # where indexes are kept; default RECOLLECT_CACHE or ~/.cache/recollect


@dataclass
class Config:
    """The whole tree."""

    agent: Agent = field(default_factory=Agent)
    recurrent: Recurrent = field(default_factory=Recurrent)
    data: Data = field(default_factory=Data)
    actor_rollout_ref: ActorRolloutRef = field(default_factory=ActorRolloutRef)
    algorithm: Algorithm = field(default_factory=Algorithm)
    critic: Critic = field(default_factory=Critic)
    reward_model: RewardModel = field(default_factory=RewardModel)
    sft: SFT = field(default_factory=SFT)
    evaluation: Evaluation = field(default_factory=Evaluation)
    trainer: Trainer = field(default_factory=Trainer)
    sandbox: Sandbox = field(default_factory=Sandbox)
    search: Search = field(default_factory=Search)
