"""The version: that of the build, which knows the tags; in a checkout that was never built, the next release's."""

try:
    from turnout._built import version as __version__
except ModuleNotFoundError:
    __version__ = "0.1.0.dev0"
