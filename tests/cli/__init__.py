"""The command line, run as users run it."""
