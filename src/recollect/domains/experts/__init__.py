"""Scripted experts: the next action from the task and what was done so far. No model is asked.

On made-up tasks they are perfect. On others they do what a script can: where the accepted answer stands in what they
have read they give it, otherwise a sentence that is about what was asked; they compute what they understand as a whole.
Where they cannot they say so.
"""

from recollect.domains.experts.math import math_expert
from recollect.domains.experts.mhqa import mhqa_expert
from recollect.domains.experts.swe import swe_expert
from recollect.domains.experts.tau import tau_expert
from recollect.domains.experts.video import video_expert

__all__ = ["math_expert", "mhqa_expert", "swe_expert", "tau_expert", "video_expert"]
