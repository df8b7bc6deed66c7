"""Prepares the environment that the settings read, before Django is set up."""
