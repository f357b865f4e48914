"""Modules of Relax that users imported themselves, with whichever of TVM's front ends."""

from __future__ import annotations

import tvm
from tvm import relax

from byoc.deploy.exchange import array_of
from byoc.deploy.metadata import TensorInfo
from byoc.errors import ByocError, ModelError
from byoc.frontends.imported import Imported
from byoc.frontends.reference import Arrays, Reference
from codegen_cc.region.relax_dims import dim_text


def import_relax(module: tvm.IRModule) -> Imported:
    """Name what a module takes and gives: inputs as the parameters of ``main``, outputs ``output0``
    and so on, ``output`` where there is one.

    Raises ``ModelError`` for a module without a ``main`` of tensors, and for one that is
    partitioned already.
    """
    main = _main(module)
    results = _results(main)
    inputs = tuple(
        tensor_info(f"parameter {p.name!r}", p.name, p.ty, ModelError) for p in main.params
    )
    names = [p.name for p in main.params]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ModelError(f"two parameters of main are called {twice[0]!r}; rename one")
    outputs = tuple(
        tensor_info(f"result {name}", name, kind, ModelError) for name, kind in results.items()
    )
    return Imported(module, inputs, outputs)


def relax_reference(module: tvm.IRModule) -> Reference:
    """TVM alone, without a kernel of ours."""
    main = _main(module)
    names = list(_results(main))
    machine = relax.VirtualMachine(tvm.compile(module, tvm.target.Target("llvm")), tvm.cpu())

    def answer(arrays: Arrays) -> Arrays:
        given = (tvm.runtime.tensor(arrays[parameter.name]) for parameter in main.params)
        made = machine["main"](*given)
        found = [made] if isinstance(made, tvm.runtime.Tensor) else list(made)
        return dict(zip(names, map(array_of, found), strict=True))

    return Reference(f"TVM {tvm.__version__}", [p.name for p in main.params], answer)


def main_of(module: tvm.IRModule, kind: type[ByocError]) -> relax.Function:
    """The function ``main`` of a module. Raises ``kind`` where there is none of Relax."""
    functions = {variable.name_hint: function for variable, function in module.functions.items()}
    main = functions.get("main")
    if not isinstance(main, relax.Function):
        known = ", ".join(functions) or "none"
        raise kind(f"the module has no Relax function main; its functions are {known}")
    return main


def has_regions(module: tvm.IRModule) -> bool:
    """Whether some function of a module is a code generator's, and not compiled yet."""
    return any(f.attrs and "Codegen" in f.attrs for f in module.functions.values())


def tensor_info(what: str, name: str, ty: relax.Type, kind: type[ByocError]) -> TensorInfo:
    """A tensor of that type; ``what`` it is of ``main``. Raises ``kind`` for any other type."""
    sizes = getattr(getattr(ty, "shape", None), "values", None)
    if not isinstance(ty, relax.TensorType) or sizes is None:
        raise kind(f"{what} of main is {ty}; need a tensor of known rank")
    extents = (int(size) if isinstance(size, tvm.tirx.IntImm) else dim_text(size) for size in sizes)
    return TensorInfo(name, tuple(extents), str(ty.dtype))


def _main(module: tvm.IRModule) -> relax.Function:
    if has_regions(module):
        raise ModelError("the module is partitioned already; give it as it was imported")
    return main_of(module, ModelError)


def _results(main: relax.Function) -> dict[str, relax.Type]:
    """Types of the results by their names."""
    result = main.body.ty if isinstance(main.body.ty, relax.TupleType) else main.ret_ty
    kinds = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    if len(kinds) == 1:
        return {"output": kinds[0]}
    return {f"output{i}": kind for i, kind in enumerate(kinds)}
