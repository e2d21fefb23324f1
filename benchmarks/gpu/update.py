"""The update on one GPU: a shared prefix with many branches as one tree, against the same sequences row by row.

    python benchmarks/gpu/update.py
    python benchmarks/gpu/update.py --device cpu

The tree goes through the learner as in training. Rows go through a plain transformers model (sdpa), and for
comparison through the same learner. All have the same loss.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from device import parse
from shapes import build, matmul_peak, seconds

from recollect.config import Optim
from recollect.models.compiled import compile_layers
from recollect.packing.micro_batch import Packed, pack
from recollect.packing.tree import build_tree
from recollect.training.learner.forward import Prediction, in_pieces
from recollect.training.learner.trained_model import TrainedModel


def plain_rows(name: str, rows: list[np.ndarray], trained: int) -> float:
    """Seconds of forward and backward of a transformers model over every row."""
    model = build(name, "sdpa").train()

    def work() -> None:
        for row in rows:
            ids = torch.from_numpy(row).cuda()[None]
            logits = model(ids, logits_to_keep=trained + 1, use_cache=False).logits[0, :-1]
            loss = torch.nn.functional.cross_entropy(logits.float(), ids[0, -trained:], reduction="sum")
            (loss / trained / len(rows)).backward()

    return seconds(work, 2, 1)


def make_learner(name: str, liger: bool = False) -> TrainedModel:
    """A learner as in training: compiled layers, or those of Liger."""
    model = build(name, dtype=torch.float32)
    if liger:
        from liger_kernel.transformers import apply_liger_kernel_to_qwen2

        apply_liger_kernel_to_qwen2(model=model, fused_linear_cross_entropy=False)
    learner = TrainedModel(model, Optim(), 1, torch.bfloat16, half=True)
    if not liger:
        compile_layers(learner.model, trained=True)
    return learner


def heads(config: Any, count: int) -> tuple[float, float]:
    """Seconds of forward and backward of the head alone, for so many targets: ours, and Liger's fused loss."""
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    head = torch.nn.Linear(config.hidden_size, config.vocab_size, False, "cuda", torch.bfloat16)
    hidden = torch.randn(count, config.hidden_size, device="cuda").bfloat16().requires_grad_()
    targets = torch.randint(config.vocab_size, (count,), device="cuda")
    policy, theirs = Prediction(hidden, head, None), LigerFusedLinearCrossEntropyLoss()
    rows = policy.at_once(config.vocab_size)
    ours = seconds(lambda: in_pieces(policy, targets, rows).logprob.mean().backward(), 5)
    return ours, seconds(lambda: theirs(head.weight, hidden, targets).backward(), 5)


def operations_of(config: object, parameters: int, tree: Packed, pairs: float) -> float:
    """Multiplications and additions of forward, backward and what the head computes twice."""
    size = config.vocab_size * config.hidden_size  # type: ignore[attr-defined]
    body = parameters - size * (1 if config.tie_word_embeddings else 2)  # type: ignore[attr-defined]
    attention = 14 * pairs * config.hidden_size * config.num_hidden_layers  # type: ignore[attr-defined]
    return 6 * body * len(tree.tokens) + 8 * size * len(tree.targets) + attention


def main() -> None:
    """Seconds of forward and backward each way, their ratios, and the share of the measured matmul peak."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="1.5B")
    parser.add_argument("--prefix", type=int, default=5120)
    parser.add_argument("--branches", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--liger", action="store_true", help="also with the kernels of liger-kernel, if installed")
    args = parse(parser, "tree_update.py")
    peak, rng = matmul_peak(), np.random.default_rng(0)
    prefix = rng.integers(0, 1000, args.prefix)
    make = lambda i: np.concatenate([prefix, [2000 + i], rng.integers(0, 1000, args.length - 1)])
    rows = [make(i) for i in range(args.branches)]
    plain = plain_rows(args.shape, rows, args.length)
    torch.cuda.empty_cache()
    trained = np.arange(args.prefix + args.length) >= args.prefix
    tree = pack(
        [build_tree(range(len(rows)), rows)], [trained] * len(rows), [i * args.length for i in range(len(rows))]
    )
    alone = [pack([build_tree([0], [row])], [trained], [0]) for row in rows]
    learner = make_learner(args.shape)
    count = args.branches * args.length

    def step(packs: list[Packed], learner: TrainedModel = learner) -> None:
        learner.backward(packs, lambda packed, logp, entropy: -logp.sum() / count)

    one, together = seconds(lambda: step(alone), 1, 1), seconds(lambda: step([tree]), 5, 2)
    parameters = sum(p.numel() for p in learner.model.parameters())
    pairs = args.prefix**2 / 2 + args.branches * (args.length * args.prefix + args.length**2 / 2)
    share = operations_of(learner.model.config, parameters, tree, pairs) / together / peak
    print(
        f"{torch.cuda.get_device_name()}, {args.shape}, prefix {args.prefix} + {args.branches} × {args.length}: tree "
        f"{together:.3f} s; rows by transformers {plain:.3f} s, {plain / together:.1f}×; rows by the same learner "
        f"{one:.3f} s, {one / together:.1f}×; {100 * share:.0f} % of {peak / 1e12:.0f} TFLOP/s"
    )
    if args.liger:
        other = make_learner(args.shape, liger=True)
        theirs = seconds(lambda: step([tree], other), 5, 2)
        ours, fused = heads(other.model.config, count)
        print(
            f"with Liger's layers instead of compiled ones: {theirs:.3f} s, {theirs / together:.2f}×; "
            f"the head alone {ours:.3f} s (log-probabilities and entropy), Liger's fused loss {fused:.3f} s"
        )


if __name__ == "__main__":
    main()
