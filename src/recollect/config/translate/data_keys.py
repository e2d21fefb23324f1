"""Answers to `data.*`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.config.translate.key_answer import Alias, Answer, Given, Refused, Same

PROCESSES = "how many processes prepare data; the tasks and their order are the same"
COLUMNS = "it adds a column to verl's batches; agents here always see the whole row"
MEDIA = "videos and sound are not read"
PICTURES = "how pictures are scaled and cut is in the preprocessor_config.json of the model's folder: set it there"
READER = "files are read by recollect: data.prompt_key, data.context_key and data.answer_key name the fields"
TOOLS = "tools are named with agent.tools=[NAME] or agent.tools=[FILE.py:FUNCTION]"
FOREIGN_CODE = "code that comes with a model or data set is not run; a model that transformers knows needs none"


def _whole_batches(key: str, value: Any, given: Given) -> bool:
    return value == given.get("data.train_batch_size")


GROUPS = "algorithm.filter_groups.enable=True leaves out groups whose attempts all earn the same"
OTHER_PROGRAM = (
    "it belongs to verl's programs for SFT and generation; `recollect sft` (docs/sft.md) and `recollect rollout` "
    "(docs/trajectories.md) do that work"
)
SFT_KEYS = (
    *("path", "output_path", "batch_size", "n_samples", "micro_batch_size", "micro_batch_size_per_gpu", "max_length"),
    *("response_key", "prompt_dict_keys", "response_dict_keys", "pad_mode", "use_dynamic_bsz", "max_token_len_per_gpu"),
)


ANSWERS: Mapping[str, Answer] = {
    **{f"data.{name}": Refused(OTHER_PROGRAM) for name in SFT_KEYS},
    "data.multiturn.*": Refused(OTHER_PROGRAM),
    "data.filter_accuracy": Refused(GROUPS, fine=(False,)),
    "data.accuracy_lower_bound": Refused(GROUPS),
    "data.accuracy_upper_bound": Refused(GROUPS),
    "data.oversample_factor": Refused(GROUPS, fine=(1, 1.0)),
    "data.tokenizer": Refused("the tokenizer is the one in the model's folder"),
    "data.use_shm": Same("files are read once, from where they are"),
    "data.reward_fn_key": Refused("the source of a row is its field data_source, or source"),
    "data.return_raw_input_ids": Same(COLUMNS),
    "data.return_raw_chat": Same(COLUMNS),
    "data.return_full_prompt": Same(COLUMNS),
    "data.dataloader_num_workers": Same(PROCESSES),
    "data.filter_overlong_prompts_workers": Same(PROCESSES),
    "data.validation_shuffle": Same("every held-out task is measured once, and its sampling noise is its own"),
    "data.image_patch_size": Refused(PICTURES),
    "data.image_key": Refused("pictures are in the column `images` or `image`", fine=("image",)),
    "data.video_key": Refused(MEDIA),
    "data.audio_key": Refused(MEDIA),
    "data.return_multi_modal_inputs": Same("pictures go with the sequences that show them"),
    "data.mm_processor_kwargs": Refused(PICTURES),
    "data.mm_processor_kwargs.*": Refused(PICTURES),
    "data.continuous_token.*": Same("sampled ids are trained as they are, and a conversation grows by appending"),
    "data.trust_remote_code": Refused(FOREIGN_CODE),
    "data.custom_cls.*": Refused(READER),
    "data.sampler.*": Refused("the order of tasks is data.shuffle's: as in the files, or drawn from data.seed"),
    "data.datagen.*": Refused("tasks come from files, or are made up (data.made_up)"),
    "data.apply_chat_template_kwargs": Refused("chat templates get no options here; agent.template chooses one"),
    "data.apply_chat_template_kwargs.*": Refused("chat templates get no options here; agent.template chooses one"),
    "data.gen_batch_size": Refused("tasks are sampled data.train_batch_size at a time", when=_whole_batches),
    "data.tool_config_path": Alias("agent.tools", expand=lambda value, given: _tools(value)),
    "data.function_tool_path": Refused(TOOLS),
}


def _tools(path: Any) -> Mapping[str, Any]:
    from recollect.config.translate.tools_keys import settings_of

    return settings_of("data.tool_config_path", path)
