"""The page about the files of VideoMultiAgents.

``python -m recollect.config.translate.trl.trl_reference > docs/from-videomultiagents.md``
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from recollect.config.translate.trl.keys import RL, RL_ALWAYS, SFT, TRLKey
from recollect.config.translate.trl.training_config import PIPELINE

HEADER = """# Configuration files of VideoMultiAgents

```bash
recollect sft --config trl_defaults.yaml --model_name DIR --tool reason --data_root data/sft --out_dir models/sft
recollect train --config rl_defaults.yaml --model_name DIR --trajectory_glob "data/raw/*/*.traj.json" \\
    --out_dir models/rl --min_reward 0.3
recollect pipeline training_config.yaml --mode both
```

Every key of a file is also an option of its command, which goes before the file; settings of recollect (`key=value`)
go before both. A key that is left out, or null, has the default below: the value of VideoMultiAgents' own file. A key
that is not listed is refused with the nearest one. `--cfg` shows what a file becomes.

This page is generated: `python -m recollect.config.translate.trl.trl_reference > docs/from-videomultiagents.md`.
"""
ALWAYS = """
What no key says: {always}. So the estimator is `gae` with a critic of its own, which is PPO; each task is attempted
once in a step, by the agent of its domain. A divergence from the starting model is not part of the reward;
`algorithm.use_kl_in_reward=True` adds it.
"""
BESIDE = """
`trl_defaults.yaml` and `rl_defaults.yaml` beside the file are the settings of SFT and RL; where they are missing, the
defaults of the tables above are. The keys of recollect's own file (docs/pipeline.md) may stand in it too.
"""


def page() -> str:
    """The whole page."""
    always = ", ".join(f"`{name}={value}`" for name, value in RL_ALWAYS.items())
    parts = [HEADER, *_table("`trl_defaults.yaml`, for `recollect sft`", SFT)]
    parts += [*_table("`rl_defaults.yaml`, for `recollect train`", RL), ALWAYS.format(always=always)]
    parts += [*_table("`training_config.yaml`, for `recollect pipeline`", PIPELINE), BESIDE]
    return "\n".join(parts)


def _table(title: str, keys: Sequence[TRLKey]) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| key | default | becomes | how |"
    yield "|---|---|---|---|"
    for key in keys:
        same = "" if key.refuse else "no value of it changes the result"
        becomes = ", ".join(f"`{name}`" for name in key.becomes) or same
        yield f"| `{key.name}` | {_shown(key.default)} | {becomes} | {key.how} |"


def _shown(value: Any) -> str:
    return "" if value is None else f"`{value if isinstance(value, str) else json.dumps(value)}`"


if __name__ == "__main__":
    print(page(), end="")
