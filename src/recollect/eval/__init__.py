"""Evaluation and the report."""
