"""``turnout warm-up``: compile the loops into the cache, for an image or before the first run."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("warm-up")
    def warm_up() -> None:
        """Compile turnout's loops once, so that no later start waits for it.

        Compiled code is kept in the user's cache, or in the folder that TURNOUT_LOOPS_CACHE names. It runs on each CPU
        of this architecture with this version of turnout, Python and Numba.
        """
        from turnout.cli.progress import console
        from turnout.errors import TurnoutError
        from turnout.loops.compiled import cache_folder, cache_is_filled, compile_loops

        if cache_is_filled():
            typer.echo(f"the loops are compiled already: {cache_folder()}")
            return
        with console().status("compiling, once") as status:
            if not compile_loops(lambda name, number, count: status.update(f"compiling {name} ({number} of {count})")):
                raise TurnoutError('Numba, which compiles the loops, is missing: install "turnout[spark]"')
        if not cache_is_filled():
            raise TurnoutError("the loops were compiled, but nothing could be kept; a warning above has the reason")
        typer.echo(f"compiled into {cache_folder()}")
