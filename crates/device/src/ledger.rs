//! The one count of a device's bytes: accounts, a budget, and the peak.
//!
//! Invariant: the accounts' bytes sum to `used` at every moment, and nothing is booked beyond the budget. Only what isn't
//! ours to decide, a lowered budget or a neighbour's `foreign` bytes, can leave `used` above it until bytes are given back.
//!
//! Deliberately touches no device. It books what backends allocate, so that every backend has the same line.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::ByteCount;

/// Books every byte of one device. Clones share one ledger.
#[derive(Clone)]
pub struct Ledger {
    entries: Arc<Mutex<Entries>>,
}

/// A name under which bytes are booked, such as `unet.weights`. Belongs to the [`Ledger`] that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account(usize);

struct Entries {
    budget: ByteCount,
    used: ByteCount,
    peak: ByteCount,
    accounts: Vec<AccountRow>,
    /// What is booked on the accounts of [`ARENA`] together, and the most of it.
    arena: ByteCount,
    arena_peak: ByteCount,
}

/// The accounts of what operations take: their outputs and their scratch memory.
pub const ARENA: [&str; 2] = ["activations", "workspace"];

/// The account of what other programs hold on the device.
pub const FOREIGN: &str = "foreign";

/// One account, as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AccountRow {
    /// The account's name.
    pub name: String,
    /// What is booked on it now.
    pub bytes: ByteCount,
    /// The most that was ever booked on it.
    pub peak_bytes: ByteCount,
}

/// The ledger at one moment. The rows' `bytes` sum exactly to `used_bytes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryReport {
    /// The line.
    pub budget_bytes: ByteCount,
    /// All that is booked now.
    pub used_bytes: ByteCount,
    /// The most that was ever booked at once. Not the sum of the rows' peaks, which happen at different moments.
    pub peak_bytes: ByteCount,
    /// The accounts, in the order of their first use.
    pub accounts: Vec<AccountRow>,
}

/// Ledger could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// The budget is spent. Free something, use a smaller size, or raise the budget by `needed - available`.
    #[error(
        "`{account}` needs {needed} more, but only {available} of the budget of {budget} is available; raise the budget or ask for less"
    )]
    OverBudget {
        /// Who asked.
        account: String,
        /// How much was asked for.
        needed: ByteCount,
        /// How much of the budget was not in use.
        available: ByteCount,
        /// The whole budget.
        budget: ByteCount,
    },
    /// The machine itself has no such memory, although the budget allows it. Lower the budget to what it has.
    #[error("`{account}` needs {needed}, which the budget allows but the machine does not have; lower the budget")]
    Exhausted {
        /// Who asked.
        account: String,
        /// How much was asked for.
        needed: ByteCount,
    },
}

impl Ledger {
    /// An empty ledger with a budget; [`ByteCount::MAX`] sets none.
    pub fn new(budget: ByteCount) -> Self {
        let entries = Entries {
            budget,
            used: ByteCount::ZERO,
            peak: ByteCount::ZERO,
            accounts: Vec::new(),
            arena: ByteCount::ZERO,
            arena_peak: ByteCount::ZERO,
        };
        Self { entries: Arc::new(Mutex::new(entries)) }
    }

    /// The account of that name, opened at its first use.
    pub fn account(&self, name: &str) -> Account {
        let mut entries = self.lock();
        if let Some(idx) = entries.accounts.iter().position(|row| row.name == name) {
            return Account(idx);
        }
        entries.accounts.push(AccountRow {
            name: name.to_owned(),
            bytes: ByteCount::ZERO,
            peak_bytes: ByteCount::ZERO,
        });
        Account(entries.accounts.len() - 1)
    }

    /// Books `size` bytes on `account` for as long as the returned charge lives.
    ///
    /// # Errors
    /// [`AllocError::OverBudget`], and then nothing is booked.
    pub fn charge(&self, account: Account, size: ByteCount) -> Result<Charge, AllocError> {
        let mut entries = self.lock();
        let available = entries.budget.saturating_sub(entries.used);
        if size > available {
            return Err(AllocError::OverBudget {
                account: entries.accounts[account.0].name.clone(),
                needed: size,
                available,
                budget: entries.budget,
            });
        }
        entries.used += size;
        entries.peak = entries.peak.max(entries.used);
        let row = &mut entries.accounts[account.0];
        row.bytes += size;
        row.peak_bytes = row.peak_bytes.max(row.bytes);
        if ARENA.contains(&row.name.as_str()) {
            entries.arena += size;
            entries.arena_peak = entries.arena_peak.max(entries.arena);
        }
        Ok(Charge { ledger: self.clone(), account, size })
    }

    /// Moves the line. Bytes in use beyond it stay booked; nothing more is until enough is given back.
    pub fn set_budget(&self, budget: ByteCount) {
        self.lock().budget = budget;
    }

    /// Says what other programs hold on the device; it is booked on the account [`FOREIGN`], whatever the budget.
    pub fn set_foreign(&self, size: ByteCount) {
        let account = self.account(FOREIGN);
        let mut entries = self.lock();
        let before = std::mem::replace(&mut entries.accounts[account.0].bytes, size);
        entries.used = entries.used - before + size;
        entries.peak = entries.peak.max(entries.used);
        let row = &mut entries.accounts[account.0];
        row.peak_bytes = row.peak_bytes.max(size);
    }

    /// What other programs hold on the device, as far as it was said.
    pub fn foreign(&self) -> ByteCount {
        self.lock().accounts.iter().find(|row| row.name == FOREIGN).map_or(ByteCount::ZERO, |row| row.bytes)
    }

    /// What can still be booked.
    pub fn available(&self) -> ByteCount {
        let entries = self.lock();
        entries.budget.saturating_sub(entries.used)
    }

    /// How far `used` is above the line.
    pub fn excess(&self) -> ByteCount {
        let entries = self.lock();
        entries.used.saturating_sub(entries.budget)
    }

    /// The line.
    pub fn budget(&self) -> ByteCount {
        self.lock().budget
    }

    /// All that is booked now.
    pub fn used(&self) -> ByteCount {
        self.lock().used
    }

    /// The most that was ever booked at once.
    pub fn peak(&self) -> ByteCount {
        self.lock().peak
    }

    /// The most that operations have taken at once, outputs and scratch memory together, since
    /// [`reset_arena_peak`](Self::reset_arena_peak).
    pub fn arena_peak(&self) -> ByteCount {
        self.lock().arena_peak
    }

    /// Measures [`arena_peak`](Self::arena_peak) anew, from what is booked now.
    pub fn reset_arena_peak(&self) {
        let mut entries = self.lock();
        entries.arena_peak = entries.arena;
    }

    /// The name of an account.
    pub fn account_name(&self, account: Account) -> String {
        self.lock().accounts[account.0].name.clone()
    }

    /// The ledger as it stands.
    pub fn report(&self) -> MemoryReport {
        let entries = self.lock();
        let sum: ByteCount = entries.accounts.iter().map(|row| row.bytes).sum();
        assert_eq!(sum, entries.used, "the accounts do not sum to the bytes in use");
        MemoryReport {
            budget_bytes: entries.budget,
            used_bytes: entries.used,
            peak_bytes: entries.peak,
            accounts: entries.accounts.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        // The entries are changed in one piece, so a panic elsewhere can't leave them halfway.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes booked on an account. Dropping it gives them back.
pub struct Charge {
    ledger: Ledger,
    account: Account,
    size: ByteCount,
}

impl Charge {
    /// How many bytes are booked.
    pub fn size(&self) -> ByteCount {
        self.size
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut entries = self.ledger.lock();
        entries.used -= self.size;
        let row = &mut entries.accounts[self.account.0];
        row.bytes -= self.size;
        if ARENA.contains(&row.name.as_str()) {
            entries.arena -= self.size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_budget_names_account_needed_and_available() {
        let ledger = Ledger::new(ByteCount(100));
        let weights = ledger.account("unet.weights");
        let _held = ledger.charge(weights, ByteCount(70)).unwrap();
        let error = ledger.charge(ledger.account("activations"), ByteCount(31)).err().unwrap();
        assert_eq!(
            error.to_string(),
            "`activations` needs 31 B more, but only 30 B of the budget of 100 B is available; raise the budget or ask for less"
        );
        assert_eq!(ledger.used(), ByteCount(70));
    }

    #[test]
    fn dropping_a_charge_gives_the_bytes_back_and_keeps_the_peak() {
        let ledger = Ledger::new(ByteCount(100));
        let account = ledger.account("a");
        let charge = ledger.charge(account, ByteCount(60)).unwrap();
        drop(charge);
        let _other = ledger.charge(ledger.account("b"), ByteCount(50)).unwrap();
        let report = ledger.report();
        assert_eq!((report.used_bytes, report.peak_bytes), (ByteCount(50), ByteCount(60)));
        assert_eq!(report.accounts.iter().map(|row| row.bytes).sum::<ByteCount>(), report.used_bytes);
    }

    #[test]
    fn the_arenas_peak_is_that_of_outputs_and_scratch_at_once() {
        let ledger = Ledger::new(ByteCount::MAX);
        let book = |name: &str, size| ledger.charge(ledger.account(name), ByteCount(size)).unwrap();
        let _weights = book("unet.weights", 1000);
        drop(book("activations", 50));
        let _output = book("activations", 30);
        drop(book("workspace", 40));
        assert_eq!(ledger.arena_peak(), ByteCount(70), "not 90: the peaks of the two were at different moments");
        ledger.reset_arena_peak();
        assert_eq!(ledger.arena_peak(), ByteCount(30));
    }

    #[test]
    fn a_neighbour_can_take_what_is_in_use_and_nothing_more_is_booked_until_it_fits() {
        let ledger = Ledger::new(ByteCount(100));
        let account = ledger.account("a");
        let held = ledger.charge(account, ByteCount(60)).unwrap();
        ledger.set_foreign(ByteCount(70));
        assert_eq!((ledger.used(), ledger.excess()), (ByteCount(130), ByteCount(30)));
        assert!(ledger.charge(account, ByteCount(1)).is_err());
        drop(held);
        assert_eq!(
            (ledger.used(), ledger.excess(), ledger.available()),
            (ByteCount(70), ByteCount::ZERO, ByteCount(30))
        );
        ledger.set_foreign(ByteCount::ZERO);
        ledger.set_budget(ByteCount(10));
        assert!(ledger.charge(account, ByteCount(11)).is_err());
        assert!(ledger.charge(account, ByteCount(10)).is_ok());
        assert_eq!(ledger.report().used_bytes, ByteCount::ZERO);
    }

    #[test]
    fn the_last_byte_of_the_budget_can_be_used() {
        let ledger = Ledger::new(ByteCount(8));
        let account = ledger.account("a");
        let _all = ledger.charge(account, ByteCount(8)).unwrap();
        assert!(ledger.charge(account, ByteCount(1)).is_err());
        assert!(ledger.charge(account, ByteCount(u64::MAX)).is_err());
    }
}
