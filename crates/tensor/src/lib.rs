//! A value with shape and dtype in device memory, and the op set on it.
