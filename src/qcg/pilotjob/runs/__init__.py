"""Run directories: layout, discovery, states, removal, and the guard against a second manager."""
