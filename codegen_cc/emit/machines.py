"""One region for several machines: a function for each way of computing it, and which runs where.

The ways differ in libraries and algorithms, as times of each machine decide, and so in packed
weights, memory and calls; weights that are equal are stored once.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen_cc.link.opened_functions import c_string
from codegen_cc.plan.builder import Plan

HEADER = "ext_machine.h"


@dataclass(frozen=True)
class Ways:
    """The plans of a region, and which of them each machine takes, by its name and in order.

    The first machine takes the first plan, whose region has the region's own symbol.
    """

    plans: tuple[Plan, ...]
    taken: tuple[tuple[str, int], ...] = ()

    @property
    def symbol(self) -> str:
        """The region's."""
        return self.plans[0].region.symbol


def exported(ways: Ways, index: int) -> str:
    """The name of the packed function of a plan."""
    return (
        ways.plans[index].region.symbol if index or len(ways.plans) == 1 else f"{ways.symbol}_on0"
    )


def way_symbol(symbol: str, index: int) -> str:
    """The symbol of a region's further plan."""
    return f"{symbol}_on{index}"


def chooser(ways: Ways) -> str:
    """The region's packed function: asks once which machine this is, and calls that one's."""
    symbol = ways.symbol
    names = [f"    {c_string(name)}," for name, _ in ways.taken]
    numbers = ", ".join(str(plan) for _, plan in ways.taken)
    functions = ", ".join(f"__tvm_ffi_{exported(ways, i)}" for i in range(len(ways.plans)))
    return "\n".join(
        [
            "/* As measured on these machines. */",
            f"TVM_FFI_DLL_EXPORT int __tvm_ffi_{symbol}(",
            "    void* self, const TVMFFIAny* args, int32_t n_args, TVMFFIAny* result) {",
            "  static const char* const machines[] = {",
            *names,
            "  };",
            f"  static const int ways[] = {{{numbers}}};",
            "  static int (*const functions[])(void*, const TVMFFIAny*, int32_t, TVMFFIAny*) = {",
            f"    {functions},",
            "  };",
            "  static int known; /* 1 more than the machine's number; 0 where nobody asked yet */",
            "  int machine = __atomic_load_n(&known, __ATOMIC_RELAXED);",
            "  if (machine == 0) {",
            f"    machine = 1 + ext_machine(machines, {len(ways.taken)});",
            "    __atomic_store_n(&known, machine, __ATOMIC_RELAXED);",
            "  }",
            "  return functions[ways[machine - 1]](self, args, n_args, result);",
            "}",
            "",
        ]
    )
