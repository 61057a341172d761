"""A run in words: the terminal summary, and the JSON document other programs read.

Names are imported from their modules: most bring pandas, `words` and `layout` do not.
"""
