//! Layers that take their weights through a lease.
