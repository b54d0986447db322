"""What the tests of the documentation share."""

import warnings

with warnings.catch_warnings():  # typer uses a name that click deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import typer  # noqa: F401
