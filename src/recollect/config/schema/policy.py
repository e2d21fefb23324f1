"""The models: what is trained, how it samples, the reference and the critic."""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect.config.schema.bounds import (
    below_one,
    choice,
    each_address,
    each_number,
    filled,
    from_minus_one,
    must,
    not_negative,
    only_one,
    part,
    positive,
    positive_by_any_name,
    share,
)
from recollect.registries import AGGREGATIONS, KL, LOSSES

ENGINES = ("engine", "vllm", "sglang", "trtllm", "hf")  # names of samplers; the first two are there


def _two_below_one(betas: list[float]) -> bool:
    return len(betas) == 2 and all(0 <= beta < 1 for beta in betas)


@dataclass
class Optim:
    """The optimizer of a trained model."""

    name: str = choice("adamw", "muon")  # muon: Muon on matrices, AdamW on the rest
    lr: float = not_negative(1e-6)  # peak learning rate
    weight_decay: float = not_negative(0.01)  # decoupled weight decay
    betas: list[float] = must([0.9, 0.999], _two_below_one, " must be two numbers in [0, 1)")  # of AdamW
    lr_warmup_steps: int = from_minus_one(-1)  # steps of linear warm-up; -1: lr_warmup_steps_ratio of all steps
    lr_warmup_steps_ratio: float = share(0.0)  # share of all steps, rounded down
    zero_indexed_step: bool = False  # True: warm-up starts at 0, as in verl, so nothing is learnt in the first step
    lr_scheduler_type: str = choice("constant", "linear", "cosine")  # the learning rate after the warm-up
    min_lr_ratio: float = share(0.0)  # where linear and cosine end, as a share of lr


@dataclass
class Model:
    """The model that is trained."""

    # a folder, a GGUF file, a hub name, `smollm2`, `tiny` (embedded); random: `scratch`, …_small, …_tools, …_vision
    path: str = filled("tiny", "name a folder, a GGUF file, a hub name, smollm2 or tiny")
    enable_gradient_checkpointing: bool = True  # recompute activations of as few layers as free memory asks for
    use_remove_padding: bool = True  # pack sequences and share their prefixes; False: one sequence at a time
    lora_rank: int = not_negative(0)  # train a LoRA adapter of this rank instead of all weights; 0: all weights
    lora_alpha: float = positive(16.0)  # scale of the adapter: alpha / rank
    target_modules: list[str] = field(default_factory=lambda: ["all-linear"])  # modules that get an adapter
    lora_dropout: float = below_one(0.0)  # dropout inside the adapter, in updates only


@dataclass
class Offload:
    """What waits in host memory while it is not needed, and how many devices share the weights."""

    param_offload: bool = False  # weights wait in host memory while they are not used; on a CPU they are there already
    optimizer_offload: bool = False  # moments wait in host memory between updates; on a CPU they are there already
    # devices that share the weights, at most those of the run; -1: all of them
    fsdp_size: int = must(-1, lambda n: n == -1 or n > 0, " must be -1 (all devices of the run) or a number of devices")
    # of several ranks, each gives back the others' weights of a layer after its forward pass; False: after the backward
    reshard_after_forward: bool = True


@dataclass
class RefOffload:
    """Where the reference's weights wait."""

    param_offload: bool = False  # in host memory while they are not used; on a CPU they are there already


@dataclass
class PolicyLoss:
    """Which policy loss."""

    loss_mode: str = choice(of=LOSSES, default="ppo", own=True)  # vanilla is another name of ppo


@dataclass
class Actor:
    """How the policy is updated."""

    optim: Optim = field(default_factory=Optim)
    ppo_mini_batch_size: int = not_negative(0)  # prompts per update; 0: all of data.train_batch_size
    ppo_epochs: int = positive(1)  # passes over each batch
    ppo_micro_batch_size_per_gpu: int | None = positive(None)  # most sequences per micro-batch; default: no such limit
    use_dynamic_bsz: bool = True  # cut micro-batches by tokens (ppo_max_token_len_per_gpu); False: by sequences alone
    ppo_max_token_len_per_gpu: int = positive(16384)  # tokens per micro-batch, shared prefixes counted once
    # GPUs that share a sequence; only 1 here
    ulysses_sequence_parallel_size: int = only_one("needs several GPUs for a sequence, and here each has its own")
    fsdp_config: Offload = field(default_factory=Offload)
    policy_loss: PolicyLoss = field(default_factory=PolicyLoss)
    clip_ratio: float = not_negative(0.2, infinite=True)  # PPO clip range, both sides
    clip_ratio_low: float | None = not_negative(None, infinite=True)  # lower side alone; default clip_ratio
    clip_ratio_high: float | None = not_negative(None, infinite=True)  # upper side alone; default clip_ratio
    # dual clip: bound on the loss of tokens with negative advantage
    clip_ratio_c: float = must(3.0, lambda c: c > 1, " must be larger than 1", infinite=True)
    loss_agg_mode: str = choice(of=AGGREGATIONS, default="token-mean")  # how the losses of tokens become one number
    # divisor of seq-mean-token-sum-norm; default: the longest completion
    loss_scale_factor: float | None = positive(None)
    use_kl_loss: bool = False  # add a divergence from the reference policy to the loss
    kl_loss_coef: float = not_negative(0.001)  # its weight
    kl_loss_type: str = choice(of=KL, default="low_var_kl")  # its estimator; full: exact over the vocabulary
    entropy_coeff: float = not_negative(0.0)  # weight of the entropy bonus
    grad_clip: float = positive(1.0, infinite=True)  # largest gradient norm
    # end the updates of a step at a divergence of 1.5 × this from the sampling policy
    target_kl: float | None = positive(None)
    shuffle: bool = True  # several updates per step: a new seeded order of tasks for each epoch; False: as sampled
    dtype: str = choice("auto", "float32", "bfloat16")  # compute type of the update; weights are float32
    freeze_vision_tower: bool = True  # of a model that sees: train its language part alone


@dataclass
class ValSampling:
    """How validation samples."""

    n: int = positive(1)  # samples per task
    do_sample: bool = False  # False: greedy
    temperature: float = not_negative(1.0)  # divides the logits
    top_p: float = part(1.0)  # keep the most likely tokens up to this probability; 1: all
    top_k: int = from_minus_one(-1)  # keep so many most likely tokens; -1: all


@dataclass
class Rollout:
    """How the policy is sampled."""

    # engine: this process samples; vllm: servers do, where vLLM is; other names, and vllm where it is not, are engine
    name: str = choice(*ENGINES)
    n: int = positive_by_any_name(8, "agent.num_chains")  # samples per task
    seed: int | None = not_negative(None)  # of sampling noise; default trainer.seed
    temperature: float = positive(1.0)  # divides the logits
    top_p: float = part(1.0)  # keep the most likely tokens up to this probability; 1: all
    top_k: int = from_minus_one(-1)  # keep so many most likely tokens; -1: all
    dtype: str = choice("auto", "float32", "bfloat16")  # compute type of sampling
    max_num_seqs: int = positive(256)  # sequences decoded side by side
    response_length: int | None = None  # longest completion of a turn; default data.max_response_length
    max_num_batched_tokens: int = positive(8192)  # prompt tokens read per engine step
    # share of the GPU's memory that sampling (a vLLM server: weights too) may fill; a CPU has no such limit
    gpu_memory_utilization: float = part(0.5)
    tensor_model_parallel_size: int = positive(1)  # GPUs that share the sampled model; more than 1 with vLLM servers
    # the numbers of the GPUs that sample in a training; none: the first that trains; servers take others
    gpus: list[int] = each_number()
    enforce_eager: bool = False  # True: never capture CUDA graphs; a CPU has none
    # give the cache's memory back during updates (a GPU's once it is half full); servers on the learner's GPUs sleep
    free_cache_engine: bool = True
    # most sequences per micro-batch of old log-probabilities
    log_prob_micro_batch_size_per_gpu: int | None = positive(None)
    log_prob_max_token_len_per_gpu: int = positive(32768)  # tokens per micro-batch of old log-probabilities
    prefix_cache_tokens: int = not_negative(262144)  # tokens of finished prompts kept for reuse
    val_kwargs: ValSampling = field(default_factory=ValSampling)
    # vLLM servers that the run starts; 0: one for every tensor_model_parallel_size GPUs, on CPUs one for each node
    num_servers: int = not_negative(0)
    nnodes: int = not_negative(0)  # nodes of a Ray cluster for servers alone; 0: servers are where the learner is
    n_gpus_per_node: int = not_negative(0)  # GPUs (or CPUs) of each of them; 0: as many as trainer.n_gpus_per_node
    # vLLM servers that run already (http://HOST:PORT), on loopback or a private network; none: the run starts its own
    server_addresses: list[str] = each_address([])
    server_python: str = ""  # the Python that has vLLM; empty: the one that runs this program
    # how servers get new weights: files on storage that they share with the learner, or a broadcast into their memory
    weight_sync: str = choice("files", "broadcast")
    # a folder that learner and servers see at the same path, for weights; empty: the run directory
    server_storage: str = ""
    server_start_s: float = positive(600.0)  # how long a server may take to load its model
    server_timeout_s: float = positive(600.0)  # deadline of one completion; a server that misses it is started again
    server_wait_s: float = not_negative(300.0)  # how long to wait for a server when none is left
    agent_name_override: str | None = None  # the agent, whatever the data says; the same as agent.agent_type
    training_stage: str | None = None  # which of two roles is trained: memory or qa; the other is the fixed model
    fixed_model_api: str | None = None  # address of the fixed model's server, such as http://localhost:8000/v1
    fixed_model_name: str | None = None  # its name there; default: the first that /v1/models lists
    fixed_model_key_env: str = "OPENAI_API_KEY"  # the environment variable that holds the key of the server
    fixed_model_timeout_s: float = positive(120.0)  # deadline of one call
    fixed_model_retries: int = not_negative(5)  # further tries of a call that got no proper answer
    fixed_model_concurrency: int = positive(64)  # calls under way at once
    # how long to wait for a server that went away before the run stops, saved
    fixed_model_wait_s: float = not_negative(300.0)


@dataclass
class Reference:
    """The reference policy of the KL term (the weights the run started from)."""

    log_prob_max_token_len_per_gpu: int = positive(32768)  # tokens per micro-batch
    # most sequences per micro-batch; default: no such limit
    log_prob_micro_batch_size_per_gpu: int | None = positive(None)
    fsdp_config: RefOffload = field(default_factory=RefOffload)


@dataclass
class ActorRolloutRef:
    """The trained policy: its model, its updates, its sampling, its reference."""

    model: Model = field(default_factory=Model)
    actor: Actor = field(default_factory=Actor)
    rollout: Rollout = field(default_factory=Rollout)
    ref: Reference = field(default_factory=Reference)
    nccl_timeout: int = positive(600)  # seconds without progress after which ranks that hang are ended and replaced


@dataclass
class CriticModel:
    """The value model: a language model's body with a head of one number."""

    path: str = ""  # a folder or hub name; empty: the actor's starting model
    share_actor: bool = False  # put the value head on the actor's own body instead of a model of its own
    enable_gradient_checkpointing: bool = True  # as the actor's; a shared body goes by the actor's
    lora_rank: int = not_negative(0)  # train a LoRA adapter of this rank and the head; 0: all weights
    lora_alpha: float = positive(16.0)  # scale of the adapter: alpha / rank
    target_modules: list[str] = field(default_factory=lambda: ["all-linear"])  # modules that get an adapter
    lora_dropout: float = below_one(0.0)  # dropout inside the adapter, in updates only


@dataclass
class Critic:
    """The value function of PPO with `algorithm.adv_estimator=gae`."""

    model: CriticModel = field(default_factory=CriticModel)
    optim: Optim = field(default_factory=lambda: Optim(lr=1e-5))
    ppo_mini_batch_size: int = not_negative(0)  # prompts per update; 0: as the actor
    ppo_micro_batch_size_per_gpu: int | None = positive(None)  # most sequences per micro-batch; default: no such limit
    ppo_max_token_len_per_gpu: int = positive(32768)  # tokens per micro-batch
    ppo_epochs: int | None = positive(None)  # passes over each batch; default: as the actor
    shuffle: bool | None = None  # as the actor's; default: as the actor
    # how far a value may move from the old one without losing its gradient
    cliprange_value: float = positive(0.5, infinite=True)
    loss_agg_mode: str = choice(of=AGGREGATIONS, default="token-mean")  # as the actor's
    # weight of the value loss; seen by grad_clip, for AdamW itself does not depend on it
    loss_coef: float = positive(1.0)
    grad_clip: float = positive(1.0, infinite=True)  # largest gradient norm
    fsdp_config: Offload = field(default_factory=Offload)


@dataclass
class RewardModel:
    """How rewards are computed."""

    reward_manager: str = choice("naive", "thread", default="thread")  # naive: one after another; thread: many at once
