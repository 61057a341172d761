"""Collectives: what they hold up, why, and how to move less of it."""
