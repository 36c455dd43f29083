//! A piece of device memory that somebody owns.

use std::any::Any;
use std::fmt;

use crate::{ByteCount, Charge};

/// A backend's handle on device memory. Freed on drop, in the order of the queue it was allocated for: after the work
/// enqueued there so far.
pub trait Storage: Any + Send + Sync {}

/// A piece of device memory, booked on an account for as long as it lives.
///
/// A backend recovers its own handle with [`storage`](Self::storage) or [`storage_mut`](Self::storage_mut); a
/// buffer of another backend is a bug that both report by panicking.
pub struct Buffer {
    storage: Box<dyn Storage>,
    size: ByteCount,
    /// None for a part of a [`Region`](crate::Region), which is booked as a whole.
    _charge: Option<Charge>,
}

impl Buffer {
    /// Puts a backend's memory and its booking together.
    pub fn new(storage: Box<dyn Storage>, charge: Charge) -> Self {
        Self { storage, size: charge.size(), _charge: Some(charge) }
    }

    /// A part of a [`Region`](crate::Region), whose `storage` keeps the region alive.
    pub fn part(storage: Box<dyn Storage>, size: ByteCount) -> Self {
        Self { storage, size, _charge: None }
    }

    /// The bytes it may hold.
    pub fn size(&self) -> ByteCount {
        self.size
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
