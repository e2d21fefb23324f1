"""Keep keys out of what is printed and stored: the error of a server may repeat the key that it was sent."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping
from urllib.parse import quote

SHOWN = "…"  # what stands in a key's place
SHORTEST = 6  # characters of a key; words such as "none" and "EMPTY" are none
_NAME = re.compile(r"(?:^|_)(?:API)?(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)(?:_|$)")
_HEADER = re.compile(
    r"(?i)((?:\b(?:proxy-)?authorization|\bx-api-key|\bapi[-_]?key)[\"']?\s*[:=]\s*[\"']?)"
    r"(?:(?:bearer|basic|token)\s+)?[^\s\"',;}]+"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}")
_LOOKS_LIKE = re.compile(r"\b(?:sk|pk|hf|ghp|key|pat)[-_][\w-]{12,}|(?<![\w/])[0-9a-fA-F]{32,}(?![\w/])")
_LOGIN = re.compile(r"//[^/@\s]+@")
_used: set[str] = set()  # environment variables that hold a key, whatever they are called


def key_of(name: str) -> str:
    """The key in an environment variable; from now on it is kept out of everything that is shown."""
    _used.add(name)
    return os.environ.get(name, "")


def keys(environment: Mapping[str, str] | None = None) -> list[str]:
    """The keys that this process knows, the longest first."""
    environment = os.environ if environment is None else environment
    named = (v for k, v in environment.items() if k in _used or (_NAME.search(k.upper()) and not v.startswith("/")))
    return sorted({v.strip() for v in named if len(v.strip()) >= SHORTEST}, key=len, reverse=True)


def without_keys(text: str, environment: Mapping[str, str] | None = None) -> str:
    """A text without the keys that this process knows, in the ways that servers write them."""
    for key in keys(environment):
        for form in _forms(key):
            text = text.replace(form, SHOWN)
    return text


def redacted(text: str, environment: Mapping[str, str] | None = None) -> str:
    """A message without known keys, authorization headers, texts that look like keys, and logins in addresses."""
    text = _HEADER.sub(rf"\1{SHOWN}", without_keys(text, environment))
    text = _BEARER.sub(rf"\1 {SHOWN}", text)
    return _LOGIN.sub("//", _LOOKS_LIKE.sub(SHOWN, text))


def _forms(key: str) -> dict[str, None]:
    """A key as it is, in JSON, in an address, in base64."""
    inside = json.dumps(key)[1:-1]
    coded = base64.b64encode(key.encode("utf-8", "replace")).decode()
    return dict.fromkeys([key, inside, inside.replace("/", "\\/"), quote(key, safe=""), coded])
