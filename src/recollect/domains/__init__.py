"""Domains: what an agent is asked, which tools it has, and how its outcome is checked. ``registry.py`` lists them."""
