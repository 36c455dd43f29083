//! A piece of device memory that somebody owns.

use std::any::Any;
use std::fmt;

use crate::{ByteCount, Charge};

/// A backend's handle on device memory. Freed on drop, after all work enqueued on it.
pub trait Storage: Any + Send + Sync {}

/// A piece of device memory, booked on an account for as long as it lives.
///
/// A backend recovers its own handle with [`storage`](Self::storage) or [`storage_mut`](Self::storage_mut); a
/// buffer of another backend is a bug that both report by panicking.
pub struct Buffer {
    storage: Box<dyn Storage>,
    charge: Charge,
}

impl Buffer {
    /// Puts a backend's memory and its booking together.
    pub fn new(storage: Box<dyn Storage>, charge: Charge) -> Self {
        Self { storage, charge }
    }

    /// The bytes it may hold.
    pub fn size(&self) -> ByteCount {
        self.charge.size()
    }

    /// The backend's handle, for reading.
    ///
    /// # Panics
    /// If the buffer belongs to another backend.
    pub fn storage<S: Storage>(&self) -> &S {
        let any: &dyn Any = &*self.storage;
        any.downcast_ref().expect("a buffer is used on the backend that allocated it")
    }

    /// The backend's handle, for writing.
    ///
    /// # Panics
    /// If the buffer belongs to another backend.
    pub fn storage_mut<S: Storage>(&mut self) -> &mut S {
        let any: &mut dyn Any = &mut *self.storage;
        any.downcast_mut().expect("a buffer is used on the backend that allocated it")
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({})", self.size())
    }
}
