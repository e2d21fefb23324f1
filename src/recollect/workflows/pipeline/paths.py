"""Where a pipeline reads and writes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from recollect.registries import DOMAINS
from recollect.training.sft.tool_data import CONVERSATIONS
from recollect.types import BadInput
from recollect.workflows.pipeline.pipeline_plan import Plan, raw_folder


@dataclass(frozen=True)
class Place:
    """The folders and files of a plan."""

    out: Path
    raw: Path
    raw_glob: str | None  # trajectories in a file each, in a folder for each domain; None: a file for each domain
    unified: Path
    sft_data: Path
    rewards: Path
    sft: Path
    rl: Path
    evaluation: Path | None
    by_tool: bool  # below `sft` is a model for each tool

    @staticmethod
    def of(plan: Plan) -> Place:
        """The paths that the plan names; the others are below its folder."""
        out = Path(plan.out).expanduser()
        named = lambda given, name: out / name if given is None else Path(given).expanduser()
        return Place(
            out,
            named(None if plan.raw_glob is None else raw_folder(plan.raw_glob), "raw"),
            plan.raw_glob,
            named(plan.unified_dir, "unified"),
            named(plan.sft_data_dir, "sft_data"),
            named(plan.rewards_file, "rewards.json"),
            named(plan.sft_models_dir, "sft"),
            named(plan.rl_models_dir, "rl"),
            None if plan.evaluation_dir is None else Path(plan.evaluation_dir).expanduser(),
            bool(plan.tools),
        )

    def raw_file(self, domain: str) -> Path:
        """Where the generated trajectories of a domain go: a file, or a folder."""
        return self.raw / (f"{domain}.jsonl" if self.raw_glob is None else domain)

    def unified_file(self, domain: str) -> Path:
        """Where the converted trajectories of a domain go: a file, or a folder."""
        return self.unified / (f"{domain}.jsonl" if self.raw_glob is None else domain)

    def sources(self, domains: Iterable[str]) -> dict[str, list[str]]:
        """domain → what is converted for it. A file that is in no folder of a domain has to name its own."""
        if self.raw_glob is None:
            return {domain: [str(there(self.raw_file(domain), "generate"))] for domain in domains}
        found: dict[str, list[str]] = {}
        for name in sorted(glob(str(Path(self.raw_glob).expanduser()), recursive=True)):
            folder = Path(name).parent.name
            found.setdefault(folder if folder in DOMAINS else "others", []).append(name)
        if not found:
            raise BadInput(f"no trajectory matches raw_glob={self.raw_glob}: the stage generate has not been run")
        return found

    def converted(self, domains: Iterable[str]) -> list[str]:
        """The converted trajectories."""
        if self.raw_glob is None:
            return [str(there(self.unified_file(domain), "convert")) for domain in domains]
        folders = (self.unified_file(domain) for domain in self.sources(domains))
        return [str(there(folder, "convert")) for folder in folders]

    def acting_model(self) -> Path:
        """The SFT model that can act in whole conversations, which RL starts from if it is there."""
        return self.sft / CONVERSATIONS / "model" if self.by_tool else self.sft / "model"


def there(path: Path, stage: str) -> Path:
    """A path that a stage has written; refused if it has not."""
    if not path.exists():
        raise BadInput(f"{path} is not there: the stage {stage} has not been run")
    return path
