//! A panic is a broken invariant like any other, with its message and place.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use super::broken::{Checked, Invariant, broken};

thread_local! {
    /// Whether panics of this thread are caught, and the last one's message.
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on, panics that are caught here print nothing.
pub(crate) fn keep_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let is_caught = CAUGHT.with_borrow_mut(|caught| caught.as_mut().map(|told| *told = info.to_string()));
            if is_caught.is_none() {
                loud(info);
            }
        }));
    });
}

/// Runs `work`, which may panic.
pub(crate) fn caught<T>(work: impl FnOnce() -> Checked<T>) -> Checked<T> {
    CAUGHT.set(Some(String::new()));
    let outcome = catch_unwind(AssertUnwindSafe(work));
    let told = CAUGHT.take().unwrap_or_default();
    outcome.unwrap_or_else(|_| broken(Invariant::NoPanic, told))
}
