"""kernwright's layers for Hugging Face's `kernels`, as a local repository in its layout.

    from kernels import Mode, kernelize, use_kernel_mapping
    from kernwright.torch.layers import kernel_mapping

    with use_kernel_mapping(kernel_mapping()):
        model = kernelize(model, mode=Mode.INFERENCE | Mode.TORCH_COMPILE, device="cuda")

The layers are for inference. `kernwright.torch.patch` also does what a layer may not have: fused
products, and weights that are together in memory."""

import pathlib
from typing import Any, Dict

#: The repository, as `kernels.LocalLayerRepository` takes it.
REPOSITORY = pathlib.Path(__file__).resolve().parent / "repository"
#: The layers that it has, under the names that models ask for.
LAYERS = ("RMSNorm", "SiluAndMul")


def kernel_mapping() -> Dict[str, Dict[str, Any]]:
    """Returns the argument for `kernels.use_kernel_mapping` and `kernels.register_kernel_mapping`.
    Errors: ImportError without the package `kernels`."""
    from kernels import LocalLayerRepository

    return {name: {"cuda": LocalLayerRepository(REPOSITORY, layer_name=name)} for name in LAYERS}
