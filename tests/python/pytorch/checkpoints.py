"""Quantized layers, and the tensors in which checkpoints keep them, written bit by bit."""

import torch

NIBBLES_OF_AWQ = 0, 2, 4, 6, 1, 3, 5, 7  # the column of each nibble of a word


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
