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


@dataclass
class Actor:
    """How the policy is updated."""

    optim: Optim = field(default_factory=Optim)
    ppo_mini_batch_size: int = 0  # prompts per update; 0: all of data.train_batch_size
    ppo_epochs: int = 1  # passes over each batch
    ppo_max_token_len_per_gpu: int = 16384  # tokens per micro-batch, shared prefixes counted once
    clip_ratio: float = 0.2  # PPO clip range, both sides
    clip_ratio_low: float | None = None  # lower side alone; default clip_ratio
    clip_ratio_high: float | None = None  # upper side alone; default clip_ratio
    clip_ratio_c: float = 3.0  # dual clip: bound on the loss of tokens with negative advantage
    loss_agg_mode: str = "token-mean"  # token-mean, or trajectory-mean (every trajectory weighs the same)
    use_kl_loss: bool = False  # add a divergence from the reference policy to the loss
    kl_loss_coef: float = 0.001  # its weight
    kl_loss_type: str = "low_var_kl"  # its estimator: low_var_kl, kl, mse or abs
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

    name: str = "engine"  # engine: the in-process engine
    n: int = 8  # samples per task
    temperature: float = 1.0  # divides the logits
    top_p: float = 1.0  # keep the most likely tokens up to this probability; 1: all
    top_k: int = -1  # keep so many most likely tokens; -1: all
    dtype: str = "auto"  # auto, float32 or bfloat16
    max_num_seqs: int = 256  # sequences decoded side by side
    max_num_batched_tokens: int = 8192  # prompt tokens read per engine step
    prefix_cache_tokens: int = 262144  # tokens of finished prompts kept for reuse
    val_kwargs: ValSampling = field(default_factory=ValSampling)


@dataclass
class Reference:
    """The reference policy of the KL term (the weights the run started from)."""

    log_prob_max_token_len_per_gpu: int = 32768  # tokens per micro-batch


@dataclass
class ActorRolloutRef:
    """The trained policy: its model, its updates, its sampling, its reference."""

    model: Model = field(default_factory=Model)
    actor: Actor = field(default_factory=Actor)
    rollout: Rollout = field(default_factory=Rollout)
    ref: Reference = field(default_factory=Reference)


@dataclass
class Algorithm:
    """From rewards to advantages."""

    adv_estimator: str = "grpo"  # grpo
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
    val_batch_size: int = 0  # validation tasks; 0: all of the files, or 256 made-up ones
    prompt_key: str = "question"  # field with the question
    context_key: str = "context"  # field with the document
    answer_key: str = "answer"  # field with the accepted answer or answers
    shuffle: bool = True  # new seeded order each epoch
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

    enable: str = "memory"  # memory
    memory: RecurrentMemory = field(default_factory=RecurrentMemory)


@dataclass
class Agent:
    """The agent loop and its reward."""

    agent_type: str = "recurrent"  # recurrent, or package.module:function, or file.py:function
    reward_name: str = "boxed_em"  # boxed_em, em, f1, sub_em, or module:function, or file.py:function
    max_concurrency: int = 1024  # trajectories under way at once
    timeout_s: float = 600.0  # deadline of one trajectory
    reward_timeout_s: float = 60.0  # deadline of one reward call
    max_failure_rate: float = 0.5  # a step with a larger share of failed trajectories stops the run


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
    total_training_steps: int = 40  # RL steps; 0: none
    save_freq: int = 10  # steps between checkpoints; -1: only at the end
    test_freq: int = -1  # steps between validations; -1: only before and after
    val_before_train: bool = True  # measure held-out success before training
    max_ckpt_to_keep: int = 3  # older checkpoints are deleted
    resume_mode: str = "auto"  # auto (from the newest checkpoint) or disable (refuse a used run directory)
    seed: int = 0  # of everything
    device: str = "auto"  # auto, cpu or cuda
    threads: int = 0  # CPU threads; 0: chosen from the model's size


@dataclass
class Config:
    """The whole tree."""

    agent: Agent = field(default_factory=Agent)
    recurrent: Recurrent = field(default_factory=Recurrent)
    data: Data = field(default_factory=Data)
    actor_rollout_ref: ActorRolloutRef = field(default_factory=ActorRolloutRef)
    algorithm: Algorithm = field(default_factory=Algorithm)
    sft: SFT = field(default_factory=SFT)
    evaluation: Evaluation = field(default_factory=Evaluation)
    trainer: Trainer = field(default_factory=Trainer)
