"""Views of what recordings repeat for every step and rank."""
