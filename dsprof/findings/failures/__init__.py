"""Launches that an error ended, or that hang: which rank was first, why, and what helps."""
