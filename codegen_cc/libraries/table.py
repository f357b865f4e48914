"""A kernel library as a table: which C function computes which operator, and what it is told.

    LIBRARY = Library(
        "my_library", version="1.0", abi=1, link=Link(headers=("my_library.h",), ...),
        kernels=[
            Kernel("matmul", function="my_gemm",
                   arguments=("lhs", "rhs", "bias", "relu", "output", "m", "n", "k"),
                   epilogue=("bias", "relu")),
        ],
    )

What the arguments of a kernel cannot tell it is refused with a reason, so that a short row is a
safe one: a convolution kernel that is not told its dilation is asked for none but 1.  Users import
this as ``byoc.library``; ``docs/my_library.md`` tells what each field means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from codegen_cc.errors import CodegenError, LibraryError
from codegen_cc.libraries.arguments import TableCall, check_names
from codegen_cc.libraries.interface import Link, Threads
from codegen_cc.libraries.kernel import Kernel
from codegen_cc.libraries.refusals import refusal
from codegen_cc.node import Node
from codegen_cc.operator import Operator, is_operator, register
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.region.graph import RegionNode
from codegen_cc.runtime_files import runtime_file

#: A C identifier, or a type that is one or two of them (``my_state``, ``struct my_state``).
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TYPE = re.compile(r"(struct )?[A-Za-z_]\w*", re.ASCII)


class Library:
    """A kernel library that is a table of kernels.

    ``link`` is a ``Link``, or a function that gives one when code is generated.  ``threads`` and
    ``status_text`` are those of ``KernelLibrary``.  Of several kernels for one operator, the first
    that supports a node computes it.  ``operators`` are records of operators that are not built in;
    they are registered (``codegen_cc.operator``).  Raises ``LibraryError`` for what is wrong with
    the table.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str,
        abi: int,
        link: Link | Callable[[], Link],
        kernels: Sequence[Kernel],
        operators: Sequence[Operator] = (),
        threads: Threads | None = None,
        status_text: str | None = None,
    ) -> None:
        self.name = name
        self.version = version
        self.abi = abi
        self.threads = threads
        self.status_text = status_text
        self._link = link
        self.kernels = self._all(Kernel, kernels, "kernels")
        self._all(Operator, operators, "operators")
        if not isinstance(version, str):
            raise LibraryError(f"library {name}: version is {version!r}; need a text")
        if threads is not None and not isinstance(threads, Threads):
            raise LibraryError(f"library {name}: threads is {threads!r}; need Threads(set, get)")
        if not callable(link):
            self._require_link(link)
        for operator in operators:
            register(operator, name)
        names = [status_text, *((threads.set, threads.get) if threads else ())]
        for function in filter(None, names):
            _require(_NAME, function, f"library {name}", "C function")
        for kernel in self.kernels:
            _check(kernel, f"library {name}, kernel for {kernel.op}")

    def _all(self, kind: type, given: object, what: str) -> tuple:
        """A sequence of one kind as a tuple."""
        if not isinstance(given, Iterable) or not all(isinstance(each, kind) for each in given):
            raise LibraryError(
                f"library {self.name}: {what} is {given!r}; need a list of {kind.__name__}"
            )
        return tuple(given)

    def _require_link(self, link: object) -> None:
        if not isinstance(link, Link):
            raise LibraryError(
                f"library {self.name}: link is {link!r}; need a Link, or a function that gives one"
            )

    def __repr__(self) -> str:
        return f"Library({self.name!r}, version={self.version!r})"

    def supports(self, node: Node) -> str | None:
        """None if a kernel of the table can compute the node, else the reasons of all of them."""
        rows = [kernel for kernel in self.kernels if kernel.op == node.op]
        if not rows:
            known = dict.fromkeys(kernel.op for kernel in self.kernels)
            return f"operator {node.op}; need one of {', '.join(known)}"
        reasons = [self._refusal(kernel, node) for kernel in rows]
        return None if None in reasons else "; ".join(dict.fromkeys(filter(None, reasons)))

    def lower(self, node: RegionNode, builder: PlanBuilder) -> None:
        """Record the call of the first kernel that supports the node, and place its results."""
        kernel = self.kernel_for(node.node)
        try:
            TableCall(kernel, node, builder).record()
        except CodegenError:
            raise
        except Exception as error:
            raise self._failed("lowering", node.node, error) from error

    def link(self) -> Link:
        """What the library's ``Link`` says; kernels that are prepared need one header more."""
        found = self._link
        if callable(found):
            found = found()
            self._require_link(found)
        if not any(kernel.prepare for kernel in self.kernels):
            return found
        header = runtime_file("include/ext_once.h")
        headers = (header.name, *found.headers)
        return Link(
            headers,
            (*found.include_dirs, header.parent),
            found.sources,
            found.archives,
            found.shared,
            found.cflags,
        )

    def algorithm(self, node: Node) -> str:
        """The kernel's name for what it does, else that of its C function."""
        return _algorithm(self.kernel_for(node))

    def algorithms(self, node: Node) -> tuple[str, ...]:
        """Those of all kernels that support the node, in the order of the table."""
        rows = [kernel for kernel in self.kernels if kernel.op == node.op]
        fit = [kernel for kernel in rows if self._refusal(kernel, node) is None]
        return tuple(dict.fromkeys(map(_algorithm, fit)))

    def cost(self, node: Node) -> float | None:
        """Seconds on one core, where the kernel states them."""
        kernel = self.kernel_for(node)
        try:
            return None if kernel.cost is None else kernel.cost(node)
        except Exception as error:
            raise self._failed("cost", node, error) from error

    def kernel_for(self, node: Node) -> Kernel:
        """The first kernel that supports the node, of those with the algorithm that it names.

        Raises ``LibraryError`` where none does.
        """
        for kernel in self.kernels:
            named = not node.algorithm or node.algorithm == _algorithm(kernel)
            if kernel.op == node.op and named and self._refusal(kernel, node) is None:
                return kernel
        raise LibraryError(
            f"library {self.name} does not compute {node.composite}: {self.supports(node)}"
        )

    def _refusal(self, kernel: Kernel, node: Node) -> str | None:
        reason = refusal(kernel, node)
        if reason is not None or kernel.supports is None:
            return reason
        try:
            answer = kernel.supports(node)
        except Exception as error:
            raise self._failed("supports", node, error) from error
        if answer is None:
            return None
        if not isinstance(answer, str) or not answer.strip():
            raise LibraryError(
                f"library {self.name}, {node.composite}: supports of {kernel.function} answered"
                f" {answer!r}; return None or a reason"
            )
        return " ".join(answer.split())

    def _failed(self, what: str, node: Node, error: Exception) -> LibraryError:
        first = (str(error).strip() or "no message").splitlines()[0]
        return LibraryError(
            f"library {self.name}, {node.composite}: {what} failed: {type(error).__name__}: {first}"
        )


def _algorithm(kernel: Kernel) -> str:
    return kernel.algorithm or kernel.function


def _check(kernel: Kernel, what: str) -> None:
    if not is_operator(kernel.op):
        raise LibraryError(f"{what}: no operator is called {kernel.op!r}; see docs/libraries.md")
    _require(_NAME, kernel.function, what, "C function")
    if kernel.prepare is not None:
        _require(_NAME, kernel.prepare, what, "C function")
    if kernel.state is not None:
        _require(_TYPE, kernel.state, what, "C type")
    if kernel.returns not in ("status", "void"):
        raise LibraryError(f"{what}: returns {kernel.returns!r}; need 'status' or 'void'")
    check_names(kernel, what)


def _require(pattern: re.Pattern[str], text: object, what: str, kind: str) -> None:
    if not isinstance(text, str) or not pattern.fullmatch(text):
        raise LibraryError(f"{what}: {text!r} is no name of a {kind}")
