"""Serves a handler: `python -m omni_runtime SETTINGS`, with the listening socket as descriptor 3.

Standard library only, so that it can never conflict with what a model installs, and as little of
it as possible, because every start of a model waits for these imports.
"""
