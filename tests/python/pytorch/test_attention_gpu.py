#!/usr/bin/env python3
"""scaled_dot_product_attention of PyTorch's own samples and of masks of all kinds, on a GPU: by kernels,
and with PyTorch's results."""

import unittest

try:
    import torch
    NO_GPU = "" if torch.cuda.is_available() else "PyTorch sees no GPU"
except ImportError:
    NO_GPU = "PyTorch is not installed"


@unittest.skipIf(NO_GPU, NO_GPU)
class AttentionGpuTest(unittest.TestCase):
    def test_kernels_compute_what_pytorch_does(self):
        from kernwright import _fallbacks
        from kernwright import torch as kw
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from sdpa_samples import masked_samples, named, own_samples

        left = _fallbacks.counts["operator attention"]
        for dtype, rounding in ((torch.bfloat16, 2e-2), (torch.float16, 4e-3)):
            calls = masked_samples("cuda", dtype)
            try:
                calls += own_samples("cuda", dtype)
            except ImportError as error:
                print(f"without PyTorch's own samples: {error}")
            for arguments, options in calls:
                if options.get("dropout_p", 0) > 0:
                    continue
                with self.subTest(named(arguments, options)), torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
                    exact = {name: value.float() if torch.is_tensor(value) and value.is_floating_point()
                             else value for name, value in options.items()}
                    wanted = torch.nn.functional.scaled_dot_product_attention(
                        *(part.float() for part in arguments), **exact)
                    result = kw.scaled_dot_product_attention(*arguments, **options)
                    self.assertEqual(result.shape, wanted.shape)
                    torch.testing.assert_close(result.float(), wanted, rtol=rounding, atol=rounding)
        self.assertEqual(_fallbacks.counts["operator attention"], left)


if __name__ == "__main__":
    unittest.main()
