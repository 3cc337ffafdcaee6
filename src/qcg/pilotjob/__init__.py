"""QCG-PilotJob: many jobs inside one allocation."""

__version__ = "1.0.0"
