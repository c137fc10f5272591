"""The decorator of loops, and their compilation: the only module that imports Numba.

A loop is a function over flat arrays. Its annotations are its signature, by the names of this module: `Bytes` and
`Int64s` are read, `ByteBuffer` and `Int64Buffer` are written. A loop

- allocates nothing for a record: results and scratch are buffers of its caller;
- may hand on arrays as a `NamedTuple` of its module, whose fields have these annotations, but takes arrays, or the
  address of many that stay the same (`Packed`);
- uses integers, comparisons, indexing, ``len``, ``range``, slices of one dimension and other loops;
- keeps each integer within 64 bits with a sign. Interpreted integers do not wrap, so hashes are masked to 32 bits
  before they are multiplied by at most 31 bits, or `wrapped` after each operation.

Interpreted, arrays arrive as memoryviews, whose elements are Python's own numbers: the same results, without numpy's
warnings of overflow. A function whose name begins with an underscore is compiled with the loops that call it.

Compiled code is kept in a folder of the user, or in the one that ``TURNOUT_LOOPS_CACHE`` names. It is for the generic
CPU of the architecture, and valid for the text of all loops and the versions of Python and Numba, so an image or an
archive can bring it along.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import itertools
import logging
import os
import platform
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, update_wrapper
from pathlib import Path
from subprocess import DEVNULL
from types import CodeType, FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeAlias, TypeVar, cast

from turnout.base.background import run_once
from turnout.base.files import FileLock
from turnout.base.startup import np

if TYPE_CHECKING:
    import numpy.typing as npt

MODULES: tuple[str, ...] = (
    "avro",
    "facts",
    "frames",
    "json",
    "protobuf",
    "segment_arrays",
    "subjects",
    "texts",
    "times",
    "match",
)
"""Modules with loops, in this package."""

CACHE_VARIABLE = "TURNOUT_LOOPS_CACHE"

Bytes: TypeAlias = "npt.NDArray[np.uint8]"
Int32s: TypeAlias = "npt.NDArray[np.int32]"
Int64s: TypeAlias = "npt.NDArray[np.int64]"
Float64s: TypeAlias = "npt.NDArray[np.float64]"
ByteBuffer: TypeAlias = "npt.NDArray[np.uint8]"
Int32Buffer: TypeAlias = "npt.NDArray[np.int32]"
Int64Buffer: TypeAlias = "npt.NDArray[np.int64]"
Float64Buffer: TypeAlias = "npt.NDArray[np.float64]"
Int64Buffer2D: TypeAlias = "npt.NDArray[np.int64]"
Int32Buffer2D: TypeAlias = "npt.NDArray[np.int32]"

_ELEMENTS = {"Byte": "uint8", "Int32": "int32", "Int64": "int64", "Float64": "float64"}
_SCALARS = {"int": "int64", "float": "float64", "bool": "boolean", "None": "void", "Packed": "int64"}

P = ParamSpec("P")
R = TypeVar("R")
Arguments = TypeVar("Arguments", bound="tuple[object, ...]")

_Foreign: TypeAlias = Any
"""A value of Numba or LLVM, which have no types, or any argument of a loop."""

_SHORT_TURN_SECONDS = 0.0005
"""Turn of a thread that computes, while another one compiles; Python's own is ten times as long."""

_log = logging.getLogger("turnout.loops")
_lock = threading.RLock()
_loops: dict[str, list[Loop[Any, Any]]] = {}
_compiled = False


def wrapped(value: int) -> int:
    """Return the lower 64 bits of an integer, with their sign: what compiled arithmetic leaves by itself."""
    return (value + 2**63) % 2**64 - 2**63


class Packed(int):
    """Address of arguments of a loop that stay the same for many calls: one number instead of seven for each array.

    Args:
        arguments: a `NamedTuple` of arrays, numbers and such tuples; it is kept, with the words that are read there.
    """

    arguments: tuple[object, ...]
    _words: npt.NDArray[np.int64]

    def __new__(cls, arguments: tuple[object, ...]) -> Self:
        """Write the address and the length of each array, and each number."""
        numbers: list[int] = []
        viewed = _viewed(arguments, numbers)
        words = np.array(numbers, np.int64)
        own = super().__new__(cls, words.ctypes.data)
        own.arguments, own._words = viewed, words
        return own


def _viewed(argument: _Foreign, words: list[int]) -> _Foreign:
    """Return an argument for an interpreted loop, and add the words by which a compiled one reads it."""
    if isinstance(argument, tuple):
        return type(argument)(*[_viewed(one, words) for one in argument])
    if isinstance(argument, np.ndarray):
        words += argument.ctypes.data, len(argument)
        return argument.data
    words.append(argument)
    return argument


def unpacked(packed: Packed, kind: type[Arguments]) -> Arguments:  # noqa: ARG001 - tells compiled loops the types
    """Return the arguments that are packed, which are of this kind."""
    return cast("Arguments", packed.arguments)


@cache
def _declare_primitives() -> None:
    """Tell Numba what functions of integers and bytes are in machine code."""
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic, overload
    from numba.np.arrayobj import populate_array

    from turnout.loops.texts import lowest_byte, prefetch, prefetch_at, word_at

    word, byte, number = cgutils.ir.IntType(64).as_pointer(), cgutils.ir.IntType(8).as_pointer(), cgutils.ir.IntType(32)

    def address(call: _Foreign, kind: object) -> object:
        context, builder, signature, values = call
        array = context.make_array(signature.args[0])(context, builder, values[0])
        return builder.bitcast(builder.gep(array.data, [values[1]]), kind)

    def load(*call: _Foreign) -> object:
        return call[1].load(address(call, word), align=1)

    def ask(context: _Foreign, builder: _Foreign, signature: _Foreign, values: _Foreign) -> object:
        is_element = len(values) == 2
        at = address((context, builder, signature, values), byte) if is_element else builder.inttoptr(values[0], byte)
        own = cgutils.ir.FunctionType(cgutils.ir.VoidType(), [byte, number, number, number])
        called = cgutils.get_or_insert_function(builder.module, own, "llvm.prefetch.p0")
        # For reading, to be kept in all caches, data.
        builder.call(called, [at, *map(number, (0, 3, 1))])
        return context.get_dummy_value()

    def unpack(context: _Foreign, builder: _Foreign, signature: _Foreign, values: _Foreign) -> _Foreign:
        words, positions = builder.inttoptr(values[0], word), itertools.count()

        def next_word() -> _Foreign:
            return builder.load(builder.gep(words, [context.get_constant(types.intp, next(positions))]))

        def read(kind: _Foreign) -> _Foreign:
            if isinstance(kind, types.BaseTuple):
                return context.make_tuple(builder, kind, [read(one) for one in kind])
            if not isinstance(kind, types.Array):
                return next_word()
            array = context.make_array(kind)(context, builder)
            data, size = builder.inttoptr(next_word(), array.data.type), next_word()
            item = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
            populate_array(array, data, shape=[size], strides=[item], itemsize=item, meminfo=None)
            return array._getvalue()  # noqa: SLF001 - Numba's own name

        return read(signature.return_type)

    def count(_context: object, builder: _Foreign, _signature: object, values: _Foreign) -> _Foreign:
        return builder.cttz(values[0], cgutils.true_bit)

    asked = intrinsic(lambda _, numbers, at: (types.void(numbers, types.int64), ask))  # noqa: ARG005
    asked_at = intrinsic(lambda _, at: (types.void(types.int64), ask))  # noqa: ARG005
    loaded = intrinsic(lambda _, data, at: (types.int64(data, types.int64), load))  # noqa: ARG005 - their types
    zeros = intrinsic(lambda _, number: (types.int64(types.int64), count))  # noqa: ARG005
    unpack_all = intrinsic(lambda _, packed, kind: (_tuple_type(kind.instance_class)(packed, kind), unpack))
    overload(unpacked)(lambda packed, kind: lambda packed, kind: unpack_all(packed, kind))  # noqa: ARG005
    overload(wrapped)(lambda value: lambda value: value)  # noqa: ARG005 - the outer one takes its type
    overload(word_at)(lambda data, at: lambda data, at: loaded(data, at))  # noqa: ARG005
    overload(prefetch)(lambda numbers, at: lambda numbers, at: asked(numbers, at))  # noqa: ARG005
    overload(prefetch_at)(lambda address: lambda address: asked_at(address))  # noqa: ARG005
    overload(lowest_byte)(lambda word: lambda word: zeros(word) >> 3)  # noqa: ARG005


class Loop(Generic[P, R]):
    """A function over arrays that runs interpreted, or compiled after `compile_loops`.

    Attributes:
        function: the function as it was written.
        plain: what runs interpreted: the function, or one for it that copies slices, where the function copies byte by
            byte. Compiled, the latter is as fast as it can be, and slices take seven times as long.
        direct: the loop as it runs now, without checks of the types of its arguments: these take longer than a small
            loop does. For callers whose arrays always are contiguous and have the types of the annotations.
    """

    def __init__(self, function: Callable[P, R], *, is_inlined: bool = False) -> None:
        self.function = function
        self._is_inlined = is_inlined
        self.plain: Callable[P, R] = function
        self._run: Callable[..., Any] = self.interpreted
        self.direct: Callable[..., Any] = self.interpreted
        self._dispatcher: _Foreign = None
        self._alone: Callable[..., Any] | None = None
        update_wrapper(self, function)
        _loops.setdefault(function.__module__, []).append(self)

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
            """Run the loop; its arguments have positions and no names."""

    else:

        def __call__(self, *args):
            """Run the loop, without keywords: these would cost as much as a small loop."""
            return self._run(*args)

    def interpreted(self, *args: Any) -> Any:
        """Run the function, and the loops that it calls, as plain Python, also while another thread compiles them."""
        function = self._alone or self._make_alone()
        return function(*[memoryview(cast("Any", one)) if isinstance(one, np.ndarray) else one for one in args])

    def _make_alone(self) -> Callable[..., Any]:
        """Return the plain function with those of the loops that it calls: compiled, these take no memory views."""
        plain = cast("FunctionType", self.plain)
        names = {name: plain.__globals__[name] for name in _names_in(plain.__code__) if name in plain.__globals__}
        names["__builtins__"] = plain.__globals__["__builtins__"]
        self._alone = FunctionType(plain.__code__, names, plain.__name__, plain.__defaults__, plain.__closure__)
        for name, value in names.items():
            if isinstance(value, Loop):
                names[name] = value._alone or value._make_alone()  # noqa: SLF001 - of the same class
        return self._alone

    @property
    def name(self) -> str:
        """Name of the loop with its module."""
        return f"{self.function.__module__.rpartition('.')[2]}.{self.function.__name__}"

    @property
    def is_entry(self) -> bool:
        """True if other packages call it; the others are compiled with their callers."""
        return not (self._is_inlined or self.function.__name__.startswith("_"))

    @property
    def _numba_type_(self) -> _Foreign:
        # By this, Numba takes a loop that another one calls for what was compiled of it.
        import numba

        return numba.typeof(self.dispatcher())

    def dispatcher(self) -> _Foreign:
        """Compile the function, or load it from the cache, and return Numba's dispatcher."""
        if self._dispatcher is None:
            self._dispatcher = _dispatcher_of(self.function, is_entry=self.is_entry, is_inlined=self._is_inlined)
        return self._dispatcher

    def use_compiled(self) -> None:
        """Run compiled from now on."""
        dispatcher: _Foreign = self.dispatcher()
        self._run = dispatcher
        ((_, own),) = dispatcher.overloads.items()
        self.direct = own.entry_point


def _names_in(code: CodeType) -> Iterator[str]:
    """Yield the global names that a function uses, and functions in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def compiled(function: Callable[P, R]) -> Loop[P, R]:
    """Return the function as a loop, which `compile_loops` compiles."""
    return Loop(function)


def inlined(function: Callable[P, R]) -> Loop[P, R]:
    """Return the function as a loop that becomes a part of each of its callers.

    A call passes each array as seven numbers, which takes longer than a small function does.
    """
    return Loop(function, is_inlined=True)


def loops_are_compiled() -> bool:
    """Return whether `compile_loops` has been called with success."""
    return _compiled


def compile_loops(progress: Callable[[str, int, int], None] | None = None) -> bool:
    """Compile every loop, or load them from the cache; the second and later calls do nothing.

    Without Numba the loops stay interpreted, which a warning says once.

    Args:
        progress: called before each loop that is compiled or loaded, with its name, its number and the number of all.

    Returns:
        Whether the loops are compiled now.
    """
    global _compiled
    with _lock:
        if _compiled:
            return True
        if importlib.util.find_spec("numba") is None:
            _warn_without_numba()
            return False
        entries = [loop for loop in _every_loop() if loop.is_entry]
        folder = cache_folder()
        with _only_process(folder):
            begun, known = time.monotonic(), cache_is_filled()
            if not known and entries:
                _log.info("compiling, once: %d loops into %s", len(entries), folder or "memory")
            with _second_process(None if known else folder):
                for number, loop in enumerate(entries, 1):
                    if progress is not None:
                        progress(loop.name, number, len(entries))
                    loop.dispatcher()
            for loop in entries:
                loop.use_compiled()
            if not known and folder is not None:
                (folder / _COMPLETE).touch()
                _log.info("compiled %d loops in %.1f s", len(entries), time.monotonic() - begun)
        _compiled = True
    return True


@contextmanager
def _only_process(folder: Path | None) -> Iterator[None]:
    """Let one process fill the cache: those that begin meanwhile wait for it, and load what it has compiled."""
    with ExitStack() as locks:
        if folder is not None and not cache_is_filled():
            try:
                locks.enter_context(FileLock(folder)).acquire(wait=True)
            except OSError as failure:
                _log.info("%s cannot be locked, so several processes may compile at a time: %s", folder, failure)
        yield


@contextmanager
def _second_process(folder: Path | None) -> Iterator[None]:
    """Let another process compile the loops into a folder from the last one on: both meet in the middle.

    Most of the time is Python's, so threads would not do. Without the process nothing is missing but time.
    """
    if folder is None or _processors() < 2 or not sys.executable:
        yield
        return
    environment = {**os.environ, CACHE_VARIABLE: str(folder.parent), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", f"from {__name__} import compile_from_the_last; compile_from_the_last()"]
    try:
        process = subprocess.Popen(command, env=environment, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    except OSError as failure:
        _log.info("one process compiles: %s", failure)
        yield
        return
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compile_from_the_last() -> None:
    """Compile into the cache what another process, which goes the other way, has not compiled yet."""
    folder = cache_folder()
    for loop in reversed(_every_loop()):
        if folder is not None and loop.is_entry and not any(folder.glob(f"{loop.name}-*.nbi")):
            loop.dispatcher()


def compile_in_background() -> None:
    """Compile the loops, or load them, on a thread: until then they run interpreted."""
    run_once("compilation of loops", _compile_beside_others, level=logging.WARNING)


def _compile_beside_others() -> None:
    """Compile the loops while other threads compute: after each read of a file this one waits for their turn to end."""
    # One at a time: another one would take the short turn for the one to restore.
    with _lock:
        before = sys.getswitchinterval()
        sys.setswitchinterval(_SHORT_TURN_SECONDS)
        try:
            compile_loops()
        finally:
            sys.setswitchinterval(before)


def fill_cache(progress: Callable[[], None] = lambda: None) -> None:
    """Compile the loops if the cache lacks them, so that processes that begin now load them.

    Args:
        progress: called before they are compiled.
    """
    if importlib.util.find_spec("numba") is None:
        _warn_without_numba()
    elif cache_folder() is not None and not cache_is_filled():
        progress()
        compile_loops()


def cache_is_filled() -> bool:
    """Return whether the cache has every loop of this version, so that nothing is compiled."""
    folder = cache_folder()
    return folder is not None and (folder / _COMPLETE).exists()


_COMPLETE = "complete"


def _every_loop() -> list[Loop[Any, Any]]:
    package = __name__.rpartition(".")[0]
    for module in MODULES:
        importlib.import_module(f"{package}.{module}")
    return [loop for module in MODULES for loop in _loops.get(f"{package}.{module}", ())]


@cache
def _warn_without_numba() -> None:
    _log.warning('Numba is missing, so loops run interpreted and slowly: install "turnout[spark]"')


def _dispatcher_of(function: Callable[..., Any], *, is_entry: bool, is_inlined: bool) -> _Foreign:
    import numba
    from numba.core.registry import cpu_target

    _declare_primitives()
    # The code generator reads it when it is made: what the cache has then runs on each CPU of the architecture.
    before, numba.config.CPU_NAME = numba.config.CPU_NAME, "generic"
    generator = cpu_target.target_context.codegen()
    # A loop that is compiled by itself while one that calls it is compiled has a library of its own kind.
    library, generator._library_class = generator._library_class, _library_of(is_entry=is_entry)  # noqa: SLF001
    try:
        dispatcher = numba.njit(
            nogil=True,
            error_model="numpy",
            forceinline=is_inlined,
            no_cpython_wrapper=not is_entry,
            no_cfunc_wrapper=True,
            _nrt=False,
        )(function)
        folder = cache_folder() if is_entry else None
        if folder is not None:
            dispatcher._cache = _function_cache(function, folder)  # noqa: SLF001 - its own cache asks for a file's time
        dispatcher.compile(_signature(function))
        dispatcher.disable_compile()
    finally:
        numba.config.CPU_NAME = before
        generator._library_class = library  # noqa: SLF001
    return dispatcher


def _library_of(*, is_entry: bool) -> object:
    """Return the class of the compiled code of a loop: what others call is optimized with these, and only there."""
    from numba.core.codegen import JITCodeLibrary

    class Linked(JITCodeLibrary):  # type: ignore[misc]
        @property
        def codegen(self) -> SimpleNamespace:
            # It would give an environment to machine code, of which there is none.
            return SimpleNamespace(set_env=lambda *_: None)

        def _optimize_final_module(self) -> None:
            pass

        def _finalize_final_module(self) -> None:
            self._finalize_dynamic_globals()
            self._finalized = True

    return JITCodeLibrary if is_entry else Linked


def _signature(function: Callable[..., Any]) -> _Foreign:
    """Return Numba's signature for the annotations, which are texts."""
    scope, own = function.__globals__, f"{function.__module__}.{function.__name__}"
    texts = {name: _numba_type(scope, f"{own}: {name}", text) for name, text in function.__annotations__.items()}
    return texts.pop("return")(*texts.values())


def _numba_type(scope: dict[str, Any], name: str, text: str) -> _Foreign:
    import numba
    from numba import types

    if text in _SCALARS:
        return getattr(types, _SCALARS[text])
    if text == "bytes":
        return numba.typeof(b"")
    if text.startswith("tuple["):
        return types.Tuple([_numba_type(scope, name, one.strip()) for one in text[6:-1].split(",")])
    owner = scope.get(text)
    if isinstance(owner, type) and issubclass(owner, tuple):
        return _tuple_type(owner)
    dimensions = 2 if text.endswith("2D") else 1
    plain = text.removesuffix("2D")
    read_only = plain.endswith("s")
    element = plain.removesuffix("s") if read_only else plain.removesuffix("Buffer")
    if element not in _ELEMENTS:
        raise TypeError(f"{name}: {text!r} is no type of a loop")
    return types.Array(getattr(types, _ELEMENTS[element]), dimensions, "C", readonly=read_only)


def _tuple_type(owner: _Foreign) -> _Foreign:
    """Return the type of a `NamedTuple`, whose annotations mean what they do in its module."""
    from numba import types

    scope, fields = vars(sys.modules[owner.__module__]), owner.__annotations__
    own = [_numba_type(scope, f"{owner.__name__}.{name}", kind.__forward_arg__) for name, kind in fields.items()]
    return types.NamedTuple(own, owner)


def _function_cache(function: Callable[..., Any], folder: Path) -> _Foreign:
    """Return Numba's cache of a function, in this folder, for the text of all loops instead of a file's time."""
    from numba.core import caching

    class Locator(caching._CacheLocator):  # type: ignore[misc]  # noqa: SLF001 - what other locators derive from
        def ensure_cache_path(self) -> None:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)

        def get_cache_path(self) -> str:
            return str(folder)

        def get_source_stamp(self) -> str:
            return _digest()

        def get_disambiguator(self) -> str:
            return ""

        @classmethod
        def from_function(cls, *_: Any) -> Any:
            return cls()

    class Implementation(caching.CompileResultCacheImpl):  # type: ignore[misc]
        _locator_classes = [Locator]  # noqa: RUF012 - Numba's own attribute

    class FunctionCache(caching.FunctionCache):  # type: ignore[misc]
        _impl_class = Implementation

        def load_overload(self, signature: Any, context: Any) -> Any:
            try:
                return super().load_overload(signature, context)
            except Exception as problem:  # noqa: BLE001 - a damaged file fails in as many ways as pickle and LLVM have.
                _log.warning("%s cannot be read and is compiled anew: %s", self.cache_path, problem)
                return None

    return FunctionCache(function)


@cache
def _digest() -> str:
    """Return a digest of the text of all loops and the versions that compiled code depends on."""
    digest = hashlib.sha256()
    versions = [importlib.metadata.version(name) for name in ("numba", "llvmlite")]
    for text in (*versions, sys.version.split()[0], platform.machine(), sys.platform):
        digest.update(text.encode() + b"\0")
    for module in ("compiled", *MODULES):
        digest.update(Path(__file__).with_name(f"{module}.py").read_bytes())
    return digest.hexdigest()[:16]


@cache
def cache_folder() -> Path | None:
    """Return the folder of the compiled code, or None with a warning if none is safe to read and possible to write.

    What is in it is executed, so it must belong to this user or to root, and no other user may write to it.
    """
    given = os.environ.get(CACHE_VARIABLE)
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = (Path(given) if given else home / "turnout" / "loops") / _digest()
        if not folder.is_dir():
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        problem = _problem_of(folder)
    except (OSError, RuntimeError) as failure:
        problem = str(failure)
    if problem:
        _log.warning("each process compiles its loops: %s; %s names a folder for them", problem, CACHE_VARIABLE)
        return None
    return folder


def _problem_of(folder: Path) -> str:
    """Return why compiled code is neither read from this folder nor kept there, or an empty text."""
    for one in (folder, folder.parent):
        status = one.stat()
        if status.st_uid not in (os.getuid(), 0) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"{one} is not only its owner's to write"
    if not (folder / _COMPLETE).exists() and not os.access(folder, os.W_OK):
        return f"{folder} cannot be written"
    return ""
