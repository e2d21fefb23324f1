"""How a prompt model is read that does not keep to DSPy's form: what it says is the field that was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy


class LenientAdapter(dspy.ChatAdapter):
    """DSPy's own form, and where a reply does not have it, the whole reply in every field."""

    def __init__(self, names: Sequence[str]) -> None:
        """``names`` are the predictors for which advice may be asked."""
        super().__init__(use_json_adapter_fallback=False)
        self.names = list(names)

    def parse(self, signature: Any, completion: str) -> dict[str, Any]:
        try:
            return dict(super().parse(signature, completion))
        except Exception:
            return {name: self._value(field, completion) for name, field in signature.output_fields.items()}

    def _value(self, field: Any, text: str) -> Any:
        if field.annotation is str:
            return text
        if field.annotation == dict[str, str]:
            return dict.fromkeys(self.names, text)
        raise ValueError(f"a reply without a value of the type {field.annotation}: {text[:200]}")
