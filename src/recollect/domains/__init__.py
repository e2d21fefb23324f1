"""Domains: what an agent is asked, which tools it has, and how its outcome is checked. ``registry.py`` holds them."""

DOMAIN_NAMES = ("mhqa", "video", "math", "swe", "tau")
DOMAIN_AGENT_NAMES = (*DOMAIN_NAMES, "domain")  # agents; the last one takes the domain from each task's source
