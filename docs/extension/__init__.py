"""What the site needs of Sphinx beyond its own: see conf.py."""
