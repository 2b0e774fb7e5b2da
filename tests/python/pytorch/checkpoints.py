"""Quantized layers, and the tensors in which checkpoints keep them, written bit by bit."""

import torch

NIBBLES_OF_AWQ = 0, 2, 4, 6, 1, 3, 5, 7  # the column of each nibble of a word
NUMBERS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)  # of mxfp4


class Layer:
    """Random codes [n, k], with scales and zero points [n, groups]; `groups` says which group a column
    is of."""

    def __init__(self, n, k, group=32, bits=4, *, symmetric=False, seed=0, scale=torch.float16, ordered=False):
        draw = torch.Generator().manual_seed(seed + n + k)
        self.n, self.k, self.group, self.bits = n, k, group, bits
        count, most = -(-k // group), (1 << bits) - 1
        self.codes = torch.randint(0, most + 1, (n, k), generator=draw)
        self.zeros = (torch.full((n, count), 1 << (bits - 1)) if symmetric
                      else torch.randint(1, most + 1, (n, count), generator=draw))
        self.scales = ((torch.rand(n, count, generator=draw) + 0.5) / most).to(scale)
        self.groups = torch.arange(k) // group
        if ordered:
            self.groups = self.groups[torch.randperm(k, generator=draw)]

    def weight(self):
        """The matrix in double precision."""
        return (self.codes - self.zeros[:, self.groups]).double() * self.scales[:, self.groups].double()

    def gptq(self, format="gptq"):
        stored = self.zeros.t() - (1 if format == "gptq" else 0)
        return {"qweight": words(self.codes, 1, self.bits).t().contiguous(), "qzeros": words(stored, 1, self.bits),
                "scales": self.scales.t().contiguous(), "g_idx": self.groups.int()}

    def awq(self):
        def in_order(rows):
            return rows.view(-1, self.n // 8, 8)[..., NIBBLES_OF_AWQ].reshape(-1, self.n)

        return {"qweight": words(in_order(self.codes.t().contiguous()), 1, 4),
                "qzeros": words(in_order(self.zeros.t().contiguous()), 1, 4), "scales": self.scales.t().contiguous()}

    def compressed_tensors(self, symmetric=False):
        tensors = {"weight_packed": words(self.codes, 1, self.bits), "weight_scale": self.scales,
                   "weight_shape": torch.tensor([self.n, self.k])}
        return tensors if symmetric else {**tensors, "weight_zero_point": words(self.zeros, 0, self.bits)}


def words(codes, dim, bits):
    """Words of 32 bits, the first code of each in its lowest bits, along a dimension; the last is filled
    up."""
    codes = codes.transpose(0, dim)
    result = torch.zeros(-(-codes.shape[0] * bits // 32), codes.shape[1], dtype=torch.int64)
    for i, row in enumerate(codes):
        result[i * bits // 32] += row << i * bits % 32
    return torch.where(result >= 1 << 31, result - (1 << 32), result).int().transpose(0, dim).contiguous()


def codes(words, dim, bits):
    """Undoes `words`."""
    words = words.transpose(0, dim)
    parts = [words >> shift & (1 << bits) - 1 for shift in range(0, 32, bits)]
    return torch.stack(parts, 1).flatten(0, 1).transpose(0, dim)


class Linear(torch.nn.Module):
    """A layer as libraries have them: it multiplies by what its tensors say."""

    def __init__(self, layer, format, bias=None, parameters=False):
        super().__init__()
        self.format, self.bits, self.group_size = format, layer.bits, layer.group
        self.register_buffer("bias", bias)
        tensors = {"gptq": layer.gptq, "gptq_v2": lambda: layer.gptq("gptq_v2"), "awq": layer.awq,
                   "compressed_tensors": layer.compressed_tensors}[format]()
        for name, tensor in tensors.items():
            if parameters:
                self.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))
            else:
                self.register_buffer(name, tensor)

    def matrix(self):
        if self.format == "compressed_tensors":
            n, k = map(int, self.weight_shape)
            q, z, s = (codes(self.weight_packed, 1, self.bits)[:, :k], codes(self.weight_zero_point, 0, self.bits)[:n],
                       self.weight_scale)
            groups = torch.arange(k) // self.group_size
        elif self.format == "awq":
            def in_order(rows):
                places = sorted(range(8), key=NIBBLES_OF_AWQ.__getitem__)
                return codes(rows, 1, 4).reshape(len(rows), -1, 8)[..., places].flatten(1).t()

            q, z, s = in_order(self.qweight), in_order(self.qzeros), self.scales.t()
            groups = torch.arange(q.shape[1]) // self.group_size
        else:
            q = codes(self.qweight, 0, self.bits).t()
            z, s = codes(self.qzeros, 1, self.bits).t() + (self.format == "gptq"), self.scales.t()
            groups = self.g_idx.long()
        return (q - z[:, groups]) * s[:, groups]

    def forward(self, x):
        return torch.nn.functional.linear(x, self.matrix().to(x.dtype), self.bias)


def mxfp4(experts, rows, k, seed=1):
    """Blocks and scales as gpt-oss has them, and the matrices in double precision."""
    draw = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 16, (experts, rows, k), generator=draw)
    scales = torch.randint(119, 124, (experts, rows, k // 32), generator=draw).to(torch.uint8)
    weight = torch.where(codes < 8, 1, -1) * NUMBERS[codes % 8]
    weight *= (2.0 ** (scales.double() - 127)).repeat_interleave(32, 2)
    blocks = (codes[..., ::2] + codes[..., 1::2] * 16).to(torch.uint8)
    return blocks.view(experts, rows, k // 32, 16), scales, weight


def stacked(rows):
    """Rows of gates and then their ups, of those that take turns."""
    return torch.cat((rows[:, ::2], rows[:, 1::2]), 1)
