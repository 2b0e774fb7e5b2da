// An epilogue for products: keeps results within (-30, 30), smoothly.
//   kernwright tune matmul m=4096 n=6144 k=4096 dtype=bf16 --epilogue soft_cap.cu

__device__ float kernwright_epilogue(float value, int row, int column) {
  return 30.0f * tanhf(value * (1.0f / 30.0f));
}
