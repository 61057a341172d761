"""Collectives, as Python issues them."""
