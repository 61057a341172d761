"""Callbacks for training libraries; training that uses one needs no `attach`.

Each module imports its library, so import only the one that you use.
"""
