"""Callbacks for training libraries, which then need no `attach` of their own.

Each module imports its library: import the one you use.
"""
