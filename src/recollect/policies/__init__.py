"""Policies: what turns a prompt of token ids into a completion."""
