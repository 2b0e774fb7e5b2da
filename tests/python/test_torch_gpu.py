#!/usr/bin/env python3
"""The facts that PyTorch is told of calls, what it is asked, and what is left to it, on a GPU."""

import unittest

try:
    import torch
    NO_GPU = "" if torch.cuda.is_available() else "PyTorch sees no GPU"
except ImportError:
    NO_GPU = "PyTorch is not installed"

import kernwright as kw

PRODUCT = "matmul m=16 n=64 k=128 dtype=bf16"


def new(*shape, dtype="bfloat16"):
    return torch.randn(*shape, device="cuda").to(getattr(torch, dtype))


def at(offset, *shape):
    """A tensor that begins so many elements behind an aligned address."""
    return new(torch.Size(shape).numel() + offset)[offset:].view(shape)


def strange():
    """Names, inputs and weights that no kernel takes, and whether `kernwright` refuses them."""
    wide = new(16, 128, dtype="float32")
    return [
        ("odd input", at(1, 16, 128), new(64, 128), True),
        ("odd weight", new(16, 128), at(3, 64, 128), True),
        ("fp64", new(16, 128, dtype="float64"), new(64, 128, dtype="float64"), True),
        ("odd k", new(16, 127), new(64, 127), False),
        ("strided", new(16, 256)[:, ::2], new(64, 128), True),
        ("negated", torch._neg_view(new(16, 128, dtype="float16")), new(64, 128, dtype="float16"),
         True),
        ("imaginary", torch.complex(wide, wide).conj().imag, new(64, 128, dtype="float32"), True),
        ("no columns", new(16, 0), new(64, 0), True),
        ("fp32", wide, new(64, 128, dtype="float32"), False),
        ("expanded", new(1, 128).expand(16, 128), new(64, 128), False),
        ("no rows", new(2, 0, 128), new(64, 128), False),
    ]


@unittest.skipIf(NO_GPU, NO_GPU)
class TorchGpuTest(unittest.TestCase):
    def setUp(self):
        import kernwright.torch
        self.operators = kernwright.torch
        self.service = kw.default_service()

    def written(self, call, out):
        before = out._version
        call()
        return out._version - before

    def test_every_launch_bumps_what_it_writes(self):
        x, weight, out, other = new(16, 128), new(64, 128), new(16, 64), new(16, 64)
        kernel = self.service.kernel(PRODUCT)
        for call in (lambda: kernel(x, weight, out), lambda: kw.linear(x, weight, out=out),
                     lambda: self.operators.linear(x, weight, out=out)):
            self.assertEqual(self.written(call, out), 1)
        operator = torch.ops.kernwright.linear.out
        self.assertGreaterEqual(self.written(lambda: operator(x, weight, out=out), out), 1)
        self.assertEqual((x._version, weight._version, kw.linear(x, weight)._version), (0, 0, 0))
        baked = kernel.bake(x, weight, out)
        self.assertEqual(self.written(baked, out), 1)
        baked.rebind(x, weight, other)
        self.assertEqual((self.written(baked, out), self.written(baked, other)), (0, 1))
        for as_parameter in (False, True):
            builder = kw.ChainBuilder()
            builder.add(kernel, x, weight, builder.parameter(out) if as_parameter else out)
            chain = builder.build()
            self.assertEqual(self.written(chain, out), 1)
            if as_parameter:
                chain.rebind(other)
                self.assertEqual((self.written(chain, out), self.written(chain, other)), (0, 1))

    def test_autograd_sees_what_was_overwritten(self):
        y = new(16, 64).requires_grad_() * 1
        squares = y * y
        kw.linear(new(16, 128), new(64, 128), out=y.detach())
        with self.assertRaisesRegex(RuntimeError, "inplace"):
            squares.sum().backward()

    def test_tensors_that_were_made_for_inference_are_written(self):
        with torch.inference_mode():
            x, weight, out = new(16, 128), new(64, 128), new(16, 64)
            kw.linear(x, weight, out=out)
        kw.linear(x, weight, out=out)

    def test_gradients_and_tangents_are_refused(self):
        x, weight = new(16, 128), new(64, 128)
        with self.assertRaisesRegex(kw.Error, "kernwright.torch.linear"):
            kw.linear(x.clone().requires_grad_(), weight)
        with torch.no_grad():
            kw.linear(x.clone().requires_grad_(), weight)
        for call in (lambda x: self.operators.linear(x, weight), self.operators.rms_norm,
                     lambda x: kw.linear(x, weight), kw.rms_norm):
            with self.assertRaises(kw.Error):
                torch.func.jvp(call, (x,), (x,))
            with torch.autograd.forward_ad.dual_level():
                dual = torch.autograd.forward_ad.make_dual(x, x)
                with self.assertRaisesRegex(kw.Error, "tangent"):
                    call(dual)

    def test_what_no_kernel_takes_is_computed_by_pytorch(self):
        for compiled in (False, True):
            for name, x, weight, _ in strange():
                with self.subTest(name, compiled=compiled):
                    call = self.operators.linear
                    if compiled:
                        call = torch.compile(call, backend="eager")
                    wanted = torch.nn.functional.linear(x, weight)
                    given = torch.empty_like(wanted)
                    for result in (call(x, weight), call(x, weight, out=given)):
                        torch.testing.assert_close(result, wanted, rtol=2e-2, atol=2e-1)
                    torch.compiler.reset()

    def test_kernwright_alone_refuses_it(self):
        for name, x, weight, is_refused in strange():
            with self.subTest(name):
                if is_refused:
                    with self.assertRaises(kw.Error) as caught:
                        kw.linear(x, weight)
                    self.assertTrue(caught.exception.is_refusal, caught.exception)

    def test_without_rows_the_result_is_empty(self):
        for call in (lambda x: kw.linear(x, new(64, 128)), kw.rms_norm, kw.silu_and_mul, kw.softmax,
                     kw.layer_norm, lambda x: kw.elementwise("x*x", x=x), self.operators.rms_norm,
                     lambda x: self.operators.linear(x, new(64, 128))):
            for shape in ((2, 0, 128), (0, 128)):
                result = call(new(*shape))
                self.assertTrue(result.numel() == 0 and result.is_cuda)


if __name__ == "__main__":
    unittest.main()
