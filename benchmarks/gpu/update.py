"""The update on one GPU: a shared prefix with many branches as one tree, against the same sequences row by row.

python benchmarks/gpu/update.py
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from shapes import build, matmul_peak, seconds
from torch.utils.checkpoint import checkpoint

from recollect.algos.packed import Packed, pack
from recollect.algos.tree import build_tree
from recollect.models.attention import using


def main() -> None:
    """Seconds of forward and backward both ways, their ratio, and the share of the measured matmul peak."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="1.5B")
    parser.add_argument("--prefix", type=int, default=5120)
    parser.add_argument("--branches", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    args = parser.parse_args()
    model, peak = build(args.shape), matmul_peak()
    head = model.get_output_embeddings()
    rng = np.random.default_rng(0)
    prefix = rng.integers(0, 1000, args.prefix)
    make = lambda i: np.concatenate([prefix, [2000 + i], rng.integers(0, 1000, args.length - 1)])
    rows = [make(i) for i in range(args.branches)]
    trained = np.arange(args.prefix + args.length) >= args.prefix
    tree = pack(
        [build_tree(range(len(rows)), rows)], [trained] * len(rows), [i * args.length for i in range(len(rows))]
    ).to("cuda")
    alone = [pack([build_tree([0], [row])], [trained], [0]).to("cuda") for row in rows]

    def loss_of(hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(head(hidden).float(), targets, reduction="sum")

    def step(packed: Packed) -> None:
        with using(packed.plan):
            hidden = model.base_model(
                input_ids=packed.tokens[None], position_ids=packed.positions[None], use_cache=False
            ).last_hidden_state[0][packed.parents]
            pieces = zip(hidden.split(2048), packed.targets.split(2048), strict=True)
            total = torch.stack([checkpoint(loss_of, h, t, use_reentrant=False) for h, t in pieces]).sum()
            (total / len(packed.targets)).backward()

    def by_rows() -> None:
        for packed in alone:
            step(packed)

    config, nodes, targets = model.config, len(tree.tokens), len(tree.targets)
    head_size = config.vocab_size * config.hidden_size
    body = sum(p.numel() for p in model.parameters()) - head_size * (1 if config.tie_word_embeddings else 2)
    pairs = args.prefix**2 / 2 + args.branches * (args.length * args.prefix + args.length**2 / 2)
    operations = 6 * body * nodes + 8 * head_size * targets + 14 * pairs * config.hidden_size * config.num_hidden_layers
    row_seconds, tree_seconds = seconds(by_rows, 1, 1), seconds(lambda: step(tree), 3)
    print(
        f"{torch.cuda.get_device_name()}, {args.shape}, prefix {args.prefix} + {args.branches} × {args.length}: "
        f"rows {row_seconds:.3f} s, tree {tree_seconds:.3f} s, {row_seconds / tree_seconds:.1f}×; "
        f"{100 * operations / tree_seconds / peak:.0f} % of {peak / 1e12:.0f} TFLOP/s"
    )


if __name__ == "__main__":
    main()
