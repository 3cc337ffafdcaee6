"""Decides: registry, queue, resources, scheduler. Pure: events in, effects out."""
