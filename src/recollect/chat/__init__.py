"""Messages ⇄ token ids: the renderer, chat templates by name, and the syntaxes in which models call tools."""

from recollect.chat.parsers import TOOL_PARSERS, Parser, default_parser
from recollect.chat.renderer import Renderer
from recollect.chat.templates import TEMPLATES, use_template
from recollect.chat.writers import TOOL_WRITERS

__all__ = ["TEMPLATES", "TOOL_PARSERS", "TOOL_WRITERS", "Parser", "Renderer", "default_parser", "use_template"]
