//! Files to tensors: safetensors headers, indexes, range reads.
