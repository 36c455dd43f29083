//! What is alive, without keeping it so.

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Lists the values of one kind that are alive, in the order in which they were registered. Holds weak references:
/// enumerating keeps nothing alive, and what has died leaves no trace.
pub struct Registry<T> {
    entries: Mutex<Vec<Weak<T>>>,
}

impl<T> Registry<T> {
    /// An empty registry.
    pub const fn new() -> Self {
        Self { entries: Mutex::new(Vec::new()) }
    }

    /// Lists `value` from now on, for as long as it lives.
    pub fn register(&self, value: &Arc<T>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| entry.strong_count() > 0);
        entries.push(Arc::downgrade(value));
    }

    /// What is alive now.
    pub fn alive(&self) -> Vec<Arc<T>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| entry.strong_count() > 0);
        entries.iter().filter_map(Weak::upgrade).collect()
    }
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_died_is_not_listed_and_listing_keeps_nothing_alive() {
        let registry = Registry::new();
        let (a, b) = (Arc::new("a"), Arc::new("b"));
        registry.register(&a);
        registry.register(&b);
        assert_eq!(registry.alive(), [Arc::new("a"), Arc::new("b")]);
        drop(a);
        assert_eq!(registry.alive(), [Arc::new("b")]);
        assert_eq!(Arc::strong_count(&b), 1);
        for _ in 0..1000 {
            registry.register(&Arc::new("short-lived"));
        }
        assert!(registry.entries.lock().unwrap().len() <= 2, "the dead leave no trace");
    }
}
