"""Pipelines: bubbles, uneven stages, transfers."""
