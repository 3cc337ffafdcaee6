"""Run directories: layout, discovery, states, submissions, removal, and the guard against a second manager.

May import `executors` and lower layers.
"""
