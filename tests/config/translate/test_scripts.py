"""The training scripts of the other systems, setting by setting, on one GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from recollect.config.compose import Composed, composed
from recollect.config.translate.agent_keys import plain
from recollect.config.translate.known_keys import answer_of, own_keys
from recollect.types import BadInput
from tests import commands

SCRIPTS: dict[str, list[str]] = yaml.safe_load(Path(__file__).with_name("scripts.yaml").read_text())
COUNTS = r"(n_gpus_per_node|nnodes|tensor_model_parallel_size|ulysses_sequence_parallel_size)=\d+"
TWO_STAGE = [name for name in SCRIPTS if name.startswith("two_stage/")]
MEMORY = [name for name in SCRIPTS if name.startswith("memagent/run_memory")]
REFUSED = {  # what these ask for is not there, and that is said
    "memagent/run_tool_gsm8k_async": r"recurrent\.enable=tool_gsm8k: take agent\.agent_type=hf",
    "agentfly/search/train_search_r1": r"agent\.template=qwen3-think-no-tool is unknown; known: qwen2\.5",
    "agentfly/search/train_tool_call_ray": r"the tool search needs search\.corpus",
    "agentfly/webshop/train_webshop": r"agent\.agent_type=action is unknown",
    "agentfly/swe/train_swe_r2e_gym": "containers are not used",
    "agentfly/vqa/run_vlm_qa": "trust_remote_code=True: code that comes with a model",
}
TOOLS = ["AddTool", "UpdateTool", "DeleteTool", "RetrieveTool", "ListTool", "RankBM25RetrievalTool"]


def words(name: str) -> list[str]:
    return [re.sub(COUNTS, r"\1=1", word) for word in SCRIPTS[name]]


def tool_file(folder: Path) -> Path:
    file = folder / "tool_config.yaml"
    names = [*TOOLS, "EmbeddingRetrievalTool"]
    file.write_text(yaml.safe_dump({"tools": [{"class_name": f"verl.tools.memory.mem_tool.{n}"} for n in names]}))
    return file


def two_stage(name: str, folder: Path) -> Composed:
    """The script with its own file of tools, and without its file of prompts."""
    given = [word for word in words(name) if "PROMPT_TEMPLATE_PATH" not in word]
    return composed(None, [re.sub(r"tool_config_path=.*", f"tool_config_path={tool_file(folder)}", w) for w in given])


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_setting_of_every_script_has_an_answer(name: str) -> None:
    keys = [plain(word.lstrip("+").partition("=")[0]) for word in SCRIPTS[name]]
    assert len(keys) > 40
    assert [key for key in keys if answer_of(key) is None and key not in own_keys()] == []


def test_all_scripts_are_looked_at() -> None:
    assert {*TWO_STAGE, *MEMORY, *REFUSED, "agentfly/train_example"} == set(SCRIPTS)


@pytest.mark.parametrize("name", MEMORY)
def test_memagents_scripts(name: str) -> None:
    made = composed(None, words(name))
    actor, limits = made.cfg.actor_rollout_ref.actor, made.cfg.recurrent.memory.config
    assert (made.cfg.agent.agent_type, limits.chunk_size, actor.optim.lr_warmup_steps) == ("recurrent", 5000, 20)
    assert (actor.use_kl_loss, made.cfg.trainer.test_freq, made.cfg.trainer.total_epochs) == (True, 5, 30)


@pytest.mark.parametrize("name", TWO_STAGE)
def test_the_two_stage_scripts(name: str, tmp_path: Path) -> None:
    made = two_stage(name, tmp_path)
    cfg, memory = made.cfg, made.cfg.memory
    assert (cfg.agent.agent_type, cfg.agent.max_turns, cfg.agent.tool_parser) == ("tool_memory", 10, "hermes")
    assert (memory.max_calls, memory.max_length, memory.truncate_side) == (10, 3000, "left")
    assert memory.search == ["bm25", "embedding"]
    assert re.fullmatch(r"\S*hotpotqa\.py:reward_func", cfg.agent.reward_name)
    assert any("data.return_raw_chat" in line for line in made.said)
    stage = re.search(r"stage([12])", name)
    if stage:
        assert cfg.actor_rollout_ref.rollout.training_stage == ["memory", "qa"][int(stage[1]) - 1]


def test_the_two_stage_system_without_its_prompts() -> None:
    with pytest.raises(BadInput, match=r"PROMPT_TEMPLATE_PATH=.*: the agents' prompts are recollect's own"):
        composed(None, words("two_stage/run_qwen3-4b_memagent_stage1"))


def test_agentflys_example() -> None:
    cfg = composed(None, words("agentfly/train_example")).cfg
    assert (cfg.agent.agent_type, cfg.agent.tools, cfg.agent.max_context_length) == ("hf", ["calculator"], 8192)
    assert (cfg.actor_rollout_ref.rollout.n, cfg.data.max_response_length) == (8, 512)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_there_is_refused_with_a_reason(name: str) -> None:
    with pytest.raises(BadInput, match=REFUSED[name]):
        composed(None, words(name))


def test_a_dry_run_says_what_was_taken(tmp_path: Path) -> None:
    """And a refusal is one line, before anything is written."""
    given = ["actor_rollout_ref.rollout.mode=async", "+data.return_raw_chat=True", "++trainer.balance_batch=True"]
    done = commands.run("train", "needle", "--dry-run", *given, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "data.return_raw_chat=True: it adds a column" in said
    assert "as it is here anyway: actor_rollout_ref.rollout.mode=async" in said
    done = commands.run("train", "needle", "--dry-run", "reward_model.enable=True", cwd=tmp_path, timeout=300)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "there is no reward model" in done.stderr
    assert list(tmp_path.iterdir()) == []


PICTURES = """data.image_key=images data.filter_overlong_prompts=True data.truncation=error
 data.return_multi_modal_inputs=False actor_rollout_ref.model.lora_rank=64 actor_rollout_ref.model.lora_alpha=32
 actor_rollout_ref.model.target_modules=all-linear actor_rollout_ref.model.exclude_modules=.*visual.*
 actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.limit_images=4
 +actor_rollout_ref.rollout.engine_kwargs.vllm.disable_mm_preprocessor_cache=True"""


def test_verls_settings_for_pictures() -> None:
    model = ["actor_rollout_ref.model.path=scratch_vision", "data.train_files=train.parquet", "agent.agent_type=chat"]
    assert composed(None, [*PICTURES.split(), *model]).cfg.actor_rollout_ref.model.lora_rank == 64
    refused = {
        "actor_rollout_ref.actor.freeze_vision_tower=False": "exclude_modules=.*a frozen vision tower gets none",
        "data.image_key=photos": "in the column `images`",
        "data.mm_processor_kwargs.max_pixels=50176": "preprocessor_config.json of the model's folder",
    }
    for setting, why in refused.items():
        with pytest.raises(BadInput, match=why):
            composed(None, [*PICTURES.split(), *model, setting])
