"""How fast dsprof reads logs, and whether every number it reads is right."""
