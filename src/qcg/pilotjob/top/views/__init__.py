"""The views: functions of a model and a size that return lines of text.

May import the modules beside it, `watch` and lower layers.
"""
