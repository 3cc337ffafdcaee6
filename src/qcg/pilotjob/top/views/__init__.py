"""The views: functions of a model and a size that return lines of text."""
