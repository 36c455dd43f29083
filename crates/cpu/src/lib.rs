//! The CPU backend: a budgeted arena in RAM, copy queues that are threads, SIMD kernels on packed weights.
