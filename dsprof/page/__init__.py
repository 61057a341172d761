"""One HTML file that says what a run suffers from, and proves it.

The file needs nothing but a browser: no network, no server. It declares a
Content-Security-Policy under which nothing but its own script and style runs.
"""

from dsprof.page.render import render_page, write_page

__all__ = ["render_page", "write_page"]
