"""What makes the model fast on a GPU: Triton kernels, and weights of sizes that it likes."""
