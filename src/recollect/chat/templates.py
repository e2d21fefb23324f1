"""Chat templates by name (`agent.template`), for tokenizers that have none, or where another format is wanted.

Each writes its family's markers around messages, tool schemas, tool calls and tool results. None of them rewrites an
earlier turn, so rendering a finished conversation gives what a conversation that grew has. A template is made of pieces
without white space of their own; everything that is written stands in quotes.
"""

from __future__ import annotations

from typing import Any

HERMES_TOOLS = """# Tools

These functions can be called to help with the request. Their signatures, one JSON object per line:
<tools>
{tools}
</tools>

To call functions, write one block like this for each call:
<tool_call>
{"name": "the function's name", "arguments": {"an argument's name": "its value"}}
</tool_call>"""

LLAMA_TOOLS = """These functions can be called to help with the request. Their signatures, one JSON object per line:
{tools}

To call functions, reply with nothing but one JSON object like this for each call, separated by ; characters:
{"name": "the function's name", "parameters": {"an argument's name": "its value"}}"""

LISTING = "These functions can be called to help with the request:\n{tools}"  # for a syntax of the user's own
LISTINGS = {"hermes": HERMES_TOOLS, "qwen": HERMES_TOOLS, "llama": LLAMA_TOOLS}  # by parser


def _tools_block(text: str) -> str:
    """Jinja that writes a text with the schemas in place of {tools}."""
    before, after = text.split("{tools}")
    listing = "{% for tool in tools %}{{ tool | tojson }}{% if not loop.last %}{{ '\n' }}{% endif %}{% endfor %}"
    return f"{{% raw %}}{before}{{% endraw %}}{listing}{{% raw %}}{after}{{% endraw %}}"


def _calls(before: str, arguments: str, after: str, between: str, follows: str = "m['content']") -> str:
    """Jinja that writes an assistant message's tool calls, each as JSON; ``follows`` says if text stands before."""
    return "".join(
        [
            "{% for call in (m['tool_calls'] or []) %}",
            "{% set f = call['function'] or call %}",
            f"{{% if {follows} or not loop.first %}}{{{{ '{between}' }}}}{{% endif %}}",
            f"{{{{ '{before}{{\"name\": ' }}}}{{{{ f['name'] | tojson }}}}{{{{ ', \"{arguments}\": ' }}}}",
            "{% if f['arguments'] is string %}{{ f['arguments'] }}{% else %}{{ f['arguments'] | tojson }}{% endif %}",
            f"{{{{ '}}{after}' }}}}",
            "{% endfor %}",
        ]
    )


def _system(default: str) -> str:
    """Jinja that takes the system message off the front, or a default one: `system` and `rest`."""
    return "".join(
        [
            "{% set given = messages and messages[0]['role'] == 'system' %}",
            f"{{% set system = messages[0]['content'] if given else '{default}' %}}",
            "{% set rest = messages[1:] if given else messages %}",
        ]
    )


def _chatml(default_system: str, tool: str, no_thinking: str = "", said: str = "m['content']") -> str:
    """The format of the Qwen family; ``tool`` writes a tool's result, and ``said`` is what a user says."""
    return "".join(
        [
            _system(default_system),
            "{% if system or tools %}{{ '<|im_start|>system\n' + system }}",
            "{% if tools %}{{ '\n\n' if system else '' }}" + _tools_block(HERMES_TOOLS) + "{% endif %}",
            "{{ '<|im_end|>\n' }}{% endif %}",
            "{% for m in rest %}",
            "{% if m['role'] == 'tool' %}" + tool,
            "{% elif m['role'] == 'assistant' %}",
            "{{ '<|im_start|>assistant\n' + (m['content'] or '') }}",
            _calls("<tool_call>\n", "arguments", "\n</tool_call>", "\n") + "{{ '<|im_end|>\n' }}",
            "{% else %}{{ '<|im_start|>' + m['role'] + '\n' + " + said + " + '<|im_end|>\n' }}{% endif %}",
            "{% endfor %}",
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}" + no_thinking + "{% endif %}",
        ]
    )


_TOOL_MESSAGE = "{{ '<|im_start|>tool\n' + m['content'] + '<|im_end|>\n' }}"


def _tool_responses(said: str = "m['content']") -> str:
    """Results of one turn share a user message."""
    return "".join(
        [
            "{% if loop.previtem is undefined or loop.previtem['role'] != 'tool' %}{{ '<|im_start|>user' }}{% endif %}",
            "{{ '\n<tool_response>\n' + " + said + " + '\n</tool_response>' }}",
            "{% if loop.nextitem is undefined or loop.nextitem['role'] != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}",
        ]
    )


_SAY = "".join(  # a message's content: a text, or texts and images in turn
    [
        "{% macro say(content) %}{% if content is string %}{{ content }}{% else %}{% for part in content %}",
        "{% if part['type'] == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}",
        "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}{% endmacro %}",
    ]
)
_SAID = "say(m['content'])"
_NO_THINKING = (
    "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
)

_HEADER = "{{ '<|start_header_id|>' + role + '<|end_header_id|>\n\n' }}"
_LLAMA3 = "".join(
    [
        "{{ bos_token or '' }}" + _system(""),
        "{% if system or tools %}{% set role = 'system' %}" + _HEADER + "{{ system }}",
        "{% if tools %}{{ '\n\n' if system else '' }}" + _tools_block(LLAMA_TOOLS) + "{% endif %}",
        "{{ '<|eot_id|>' }}{% endif %}",
        "{% for m in rest %}",
        "{% set role = 'ipython' if m['role'] == 'tool' else m['role'] %}" + _HEADER,
        "{% if m['tool_calls'] %}"
        + _calls("", "parameters", "", "; ", "false")
        + "{% else %}{{ m['content'] }}{% endif %}",
        "{{ '<|eot_id|>' }}{% endfor %}",
        "{% if add_generation_prompt %}{% set role = 'assistant' %}" + _HEADER + "{% endif %}",
    ]
)
_PLAIN = "".join(
    [
        _system(""),
        "{% if system or tools %}{{ 'System:\n' + system }}",
        "{% if tools %}{{ '\n\n' if system else '' }}" + _tools_block(HERMES_TOOLS) + "{% endif %}",
        "{{ '\n\n' }}{% endif %}",
        "{% for m in rest %}{{ m['role'] | capitalize + ':\n' + (m['content'] or '') }}",
        "{% if m['role'] == 'assistant' %}",
        _calls("<tool_call>\n", "arguments", "\n</tool_call>", "\n") + "{{ eos_token or '' }}",
        "{% endif %}{{ '\n\n' }}{% endfor %}",
        "{% if add_generation_prompt %}{{ 'Assistant:\n' }}{% endif %}",
    ]
)

TEMPLATES = {
    "qwen2.5": _chatml("You are a helpful assistant.", _tool_responses()),
    "qwen2.5-vl": _SAY + _chatml("You are a helpful assistant.", _tool_responses(_SAID), said=_SAID),
    "qwen3": _chatml("", _tool_responses(), _NO_THINKING),
    "llama3": _LLAMA3,
    "chatml": _chatml("", _TOOL_MESSAGE),
    "chatml-vl": _SAY + _chatml("", _TOOL_MESSAGE.replace("m['content']", _SAID), said=_SAID),
    "plain": _PLAIN,
}


_FAMILY_MARKS = {
    "qwen2.5": "<|im_start|>",
    "qwen2.5-vl": "<|image_pad|>",
    "qwen3": "<|im_start|>",
    "llama3": "<|start_header_id|>",
}


def use_template(tokenizer: Any, name: str | None) -> Any:
    """The tokenizer with a chat template by name. One of the same family keeps its own, which its model has learnt."""
    own = str(getattr(tokenizer, "chat_template", None) or "")
    if name is not None and (name not in _FAMILY_MARKS or _FAMILY_MARKS[name] not in own):
        tokenizer.chat_template = TEMPLATES[name]
    return tokenizer
