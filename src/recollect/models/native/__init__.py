"""Compiled functions for CPUs, built by the machine's own compiler on first use."""
