"""The one exception for a user's mistake."""


class InputError(ValueError):
    """An input from the caller that cannot be used.

    The message is a whole sentence that names the value and says what is allowed. Command lines print it
    and exit with status 2; the app shows it; neither shows a traceback for it.
    """
