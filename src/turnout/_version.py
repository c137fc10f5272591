"""Package version: that of the build, from its tags; in a checkout without a build, that of the next release."""

try:
    from turnout._built import version as __version__
except ModuleNotFoundError:
    __version__ = "0.1.0.dev0"
