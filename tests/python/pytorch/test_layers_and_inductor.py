"""Layers for Hugging Face's `kernels`, and kernwright as a choice of Inductor."""

import subprocess
import sys

import pytest
import torch

import kernwright
from kernwright import torch as kw
from kernwright.torch import inductor

INDUCTOR = pytest.importorskip("torch._inductor.config")


def test_a_choice_of_inductor_is_there_once_and_can_be_taken_away():
    before = list(INDUCTOR.external_matmul)
    kw.use_in_inductor()
    kw.use_in_inductor()
    assert INDUCTOR.external_matmul == [*before, inductor.kernwright_mm]
    kw.use_in_inductor(False)
    kw.use_in_inductor(False)
    assert INDUCTOR.external_matmul == before


def test_a_torch_without_the_place_is_refused(monkeypatch):
    monkeypatch.delattr(INDUCTOR, "external_matmul")
    with pytest.raises(kernwright.Error, match="external_matmul"):
        kw.use_in_inductor()


def test_what_no_kernel_takes_is_computed_by_torch():
    a, b, out = torch.ones(2, 3), torch.ones(3, 4), torch.empty(2, 4)
    inductor.kernwright_mm(a, b, out=out)
    torch.testing.assert_close(out, torch.full((2, 4), 3.0))


def test_layers_of_the_repository_take_the_place_of_a_models(on_cpu, monkeypatch):
    kernels = pytest.importorskip("kernels")
    from kernwright.torch.layers import LAYERS, REPOSITORY, kernel_mapping

    @kernels.use_kernel_forward_from_hub("RMSNorm")
    class RMSNorm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.variance_epsilon = torch.nn.Parameter(torch.ones(8) * 2), 1e-6

        def forward(self, hidden_states):
            return "as it was"

    @kernels.use_kernel_forward_from_hub("SiluAndMul")
    class SiluAndMul(torch.nn.Module):
        def forward(self, x):
            return "as it was"

    assert (REPOSITORY / "build" / "torch-cuda" / "metadata.json").exists()
    mapping = kernel_mapping()
    assert set(mapping) == set(LAYERS)
    layers = {name: places["cuda"].load() for name, places in mapping.items()}
    for name, layer in layers.items():
        assert layer.can_torch_compile and not layer.has_backward
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    model = torch.nn.Sequential(RMSNorm(), SiluAndMul())
    x = torch.randn(3, 8)
    with kernels.use_kernel_mapping(mapping), torch.no_grad():
        model = kernels.kernelize(model, mode=kernels.Mode.INFERENCE | kernels.Mode.TORCH_COMPILE,
                                  device="cuda", use_fallback=False)
        result = model(x)
    assert on_cpu == ["rms_norm", "silu_and_mul"]
    rows = torch.nn.functional.rms_norm(x, (8,), torch.ones(8) * 2, 1e-6)
    torch.testing.assert_close(result, torch.nn.functional.silu(rows[:, :4]) * rows[:, 4:])


def test_torch_is_imported_when_it_is_asked_for():
    program = ("import sys, kernwright as kw\nassert 'torch' not in sys.modules\n"
               "assert kw.torch.patch and 'torch' in sys.modules\n"
               "try:\n    kw.tensorflow\nexcept AttributeError:\n    print('right')")
    result = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert result.stdout.strip() == "right"
