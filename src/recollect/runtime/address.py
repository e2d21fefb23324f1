"""Addresses of services: what tells one from a folder or a name."""

from __future__ import annotations


def is_address(text: str) -> bool:
    """True for an address of a service, which starts with http:// or https://."""
    return text.startswith(("http://", "https://"))
