"""What the package exposes, and that its page lists it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import recollect.algos
from recollect.registries import AGGREGATIONS

PAGE = (Path(__file__).parents[2] / "docs" / "algorithms.md").read_text(encoding="utf-8")


def listed(key: str) -> list[str]:
    """The names in the row of the page's table of names that a configuration key has."""
    (row,) = re.findall(rf"^\| [^|]+ \| `{re.escape(key)}` \| (.+) \|$", PAGE, flags=re.MULTILINE)
    return re.findall(r"`([^`]+)`", row)


def test_the_page_lists_every_name() -> None:
    assert listed("algorithm.adv_estimator") == list(recollect.algos.ADVANTAGES)
    assert listed("actor.policy_loss.loss_mode") == list(recollect.algos.LOSSES)
    assert listed("actor.kl_loss_type") == list(recollect.algos.KL)
    assert listed("actor.loss_agg_mode") == list(AGGREGATIONS)


def test_looking_at_the_names_leaves_torch_out_until_something_is_called() -> None:
    code = (
        "import sys; from recollect.algos import ADVANTAGES, KL, LOSSES, aggregate; from recollect import registries; "
        "names = [len(getattr(registries, n)) > 3 for n in ('ESTIMATORS', 'LOSSES', 'KL', 'AGGREGATIONS')]; "
        "early = 'torch' in sys.modules; import torch; one = torch.ones(2); "
        "print(all(names), early, float(aggregate(one, one, 'token-mean')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["True", "False", "1.0"]
