"""Names and metadata for modules that users partition and compile themselves."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax

from byoc.arguments import as_texts, as_threads
from byoc.compiler.packed_functions import settle
from byoc.compiler.partitioned import target_info, versions
from byoc.deploy.metadata import Metadata, TensorInfo
from byoc.errors import PartitionError
from byoc.frontends.relax import has_regions, main_of, tensor_info
from codegen_cc.errors import foreign_errors_as
from codegen_cc.link.embedded_text import METADATA_SECTION
from codegen_cc.target import Target


@foreign_errors_as(PartitionError, "describing the module")
def describe(
    mod: tvm.IRModule,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    target: str | None = None,
    threads: int | None = None,
) -> tvm.IRModule:
    """Attach what ``byoc.load``, ``byoc run`` and ``byoc inspect`` read to a module of one's own.

    To be called after ``RunCodegen``, before ``tvm.compile``; the library that ``export_library``
    then writes is one for ``byoc.load``::

        mod = relax.transform.RunCodegen()(byoc.partition_for_ext(mod))
        tvm.compile(byoc.describe(mod, outputs=["scores"]), "llvm").export_library("model.so")

    ``inputs`` are the names of the parameters of ``main`` (default: theirs), ``outputs`` those of
    its results, in order (default: ``output0`` and so on). ``target`` is that of ``RunCodegen``'s
    option of the same name; ``threads`` the default of ``byoc.load``. Functions that only TVM's
    Python package has are attached as well, see docs/deploying.md.

    Raises ``PartitionError`` for a module without a ``main`` of tensors, with regions that
    ``RunCodegen`` has not compiled, with metadata already, or where names are too few or too many.
    """
    from codegen_cc import metadata_module

    main = _main(mod)
    machine = Target.parse(target)
    types = [param.ty for param in main.params]
    several = isinstance(main.ret_ty, relax.TupleType)
    results = list(main.ret_ty.fields) if several else [main.ret_ty]
    named = [param.name for param in main.params]
    numbered = [f"output{index}" for index in range(len(results))]
    given = named if inputs is None else as_texts(inputs, "inputs", PartitionError)
    asked = numbered if outputs is None else as_texts(outputs, "outputs", PartitionError)
    with tvm.target.Target(machine.tvm):
        provided, needs = settle(relax.get_pipeline("default_build")(mod), machine)
    metadata = Metadata(
        _infos("input", given, types),
        _infos("output", asked, results),
        threads=as_threads(threads, PartitionError),
        target=target_info(machine),
        versions=versions(),
        runtime=needs,
    )
    found = (provided.attrs or {}).get("external_mods") or []
    return mod.with_attr("external_mods", [*found, *metadata_module(metadata.to_json(), machine)])


def _main(mod: tvm.IRModule) -> relax.Function:
    if not isinstance(mod, tvm.IRModule):
        raise PartitionError(f"the module is of type {type(mod).__name__}; need a tvm.IRModule")
    if has_regions(mod):
        raise PartitionError(
            "the module has regions that are not compiled; apply relax.transform.RunCodegen() first"
        )
    attached = (mod.attrs or {}).get("external_mods") or []
    if any(module.implements_function(METADATA_SECTION) for module in attached):
        raise PartitionError("the module has metadata already; describe it once")
    return main_of(mod, PartitionError)


def _infos(what: str, names: Sequence[str], types: Sequence[relax.Type]) -> tuple[TensorInfo, ...]:
    if len(names) != len(types):
        raise PartitionError(f"{len(names)} names given for {len(types)} {what}s of main")
    if twice := [name for name in names if list(names).count(name) > 1]:
        raise PartitionError(f"two {what}s are called {twice[0]!r}; give each a name of its own")
    return tuple(
        tensor_info(f"{what} {name!r}", name, kind, PartitionError)
        for name, kind in zip(names, types, strict=True)
    )
