"""What the package exposes, and that its page lists it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import recollect.algos
from recollect.algos.aggregation import AGGREGATIONS

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


def test_importing_the_package_leaves_torch_out_until_something_is_used() -> None:
    code = (
        "import sys, recollect.algos as a; early = 'torch' in sys.modules; import recollect.algos.aggregation; "
        "from recollect.algos import ADVANTAGES, KL, LOSSES, aggregate; print(early, 'torch' in sys.modules, "
        "callable(aggregate), callable(a.aggregate), hasattr(a, 'nothing'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["False", "True", "True", "True", "False"]
