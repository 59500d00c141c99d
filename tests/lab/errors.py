"""The one exception of the lab."""


class LabError(Exception):
    """Something is missing or broken; the message says what, and what to do about it."""
