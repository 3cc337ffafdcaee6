"""Run directories: layout, discovery, states, submissions, removal, and the guard against a second manager.

May import `executors`, `cluster`, `journal` and what is below them; `batch`, `report`, `manager` and clients import it.
"""
