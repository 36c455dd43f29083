//! The faults: what is changed where, and what is to notice it.

/// A fault, as edits of the true code.
pub(crate) struct Mutation {
    pub(crate) name: &'static str,
    /// The fault, as a sentence about the mutated code.
    pub(crate) fault: &'static str,
    pub(crate) edits: &'static [Edit],
    pub(crate) caught_by: Check,
}

/// In a file, named from the workspace's root: a text that occurs exactly once, and what comes into its place.
pub(crate) struct Edit {
    pub(crate) file: &'static str,
    pub(crate) find: &'static str,
    pub(crate) replace: &'static str,
}

/// What notices a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Check {
    /// So many seeds of the simulation.
    Seeds(u64),
    /// A package's own tests, where what the simulation sees can't tell.
    TestsOf(&'static str),
}

const RING: &str = "crates/residency/src/ring.rs";
const COMPONENT: &str = "crates/residency/src/component.rs";
const CHANGE: &str = "crates/residency/src/change.rs";
const MANAGER: &str = "crates/residency/src/manager.rs";
const LEASE: &str = "crates/residency/src/lease.rs";
const CHAIN: &str = "crates/residency/src/chain.rs";
const PLANNER: &str = "crates/residency/src/planner.rs";
const REGISTRY: &str = "crates/residency/src/registry.rs";
const LARGEST_FIRST: &str = "crates/residency/src/largest_first.rs";
const LEDGER: &str = "crates/device/src/ledger.rs";

/// Seeds that catch what goes wrong often.
const SOME: Check = Check::Seeds(2000);
/// Seeds that catch what takes a coincidence.
const MANY: Check = Check::Seeds(20_000);

/// All of them: the list of the engine's reference, section 5.8, and what the simulation has found itself.
pub(crate) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "no-consumed-wait",
        fault: "A copy into the ring does not wait for the last readers of the bytes.",
        edits: &[Edit { file: RING, find: "let _ = copies.wait(event);", replace: "let _ = event;" }],
        caught_by: SOME,
    },
    Mutation {
        name: "one-queue-recorded",
        fault: "A lease that ends records only the first of the queues that it was read on.",
        edits: &[Edit {
            file: COMPONENT,
            find: "let consumed = queues.iter().map(|queue| queue.record()).collect();",
            replace: "let consumed = queues.iter().take(1).map(|queue| queue.record()).collect();",
        }],
        caught_by: SOME,
    },
    Mutation {
        name: "resident-reader-forgotten",
        fault: "A resident that was read on a second queue is freed without waiting for that queue.",
        edits: &[Edit {
            file: COMPONENT,
            find: "let _ = self.compute.wait(&queue.record());",
            replace: "let _ = queue;",
        }],
        caught_by: SOME,
    },
    Mutation {
        name: "second-queue-unordered",
        fault: "A lease lets a second queue read before the weights are ready.",
        edits: &[Edit { file: LEASE, find: "queue.wait(&self.queues[0].record())?;", replace: "" }],
        caught_by: SOME,
    },
    Mutation {
        name: "ring-dropped-at-once",
        fault: "A ring's region is freed without waiting for the last readers of its bytes.",
        edits: &[Edit { file: RING, find: "let _ = self.home.wait(event);", replace: "let _ = event;" }],
        caught_by: SOME,
    },
    Mutation {
        name: "merge-on-the-wrong-queue",
        fault: "Adapters are merged into a streamed unit on a copy queue, not behind what made the unit ready.",
        edits: &[Edit {
            file: COMPONENT,
            find: "merge.merge(&*self.device, &**queue, &mut slot.buffer)",
            replace: "merge.merge(&*self.device, &**active.copy_queues.first().unwrap_or(queue), &mut slot.buffer)",
        }],
        caught_by: SOME,
    },
    Mutation {
        name: "merged-twice",
        fault: "Adapters are merged into a resident twice.",
        edits: &[Edit {
            file: CHANGE,
            find: "merge.merge(&*self.device, &*self.compute, &mut buffer)?;",
            replace: "merge.merge(&*self.device, &*self.compute, &mut buffer)?;
                merge.merge(&*self.device, &*self.compute, &mut buffer)?;",
        }],
        caught_by: SOME,
    },
    Mutation {
        name: "residents-not-merged",
        fault: "Residents come to stay without their adapters.",
        edits: &[Edit {
            file: CHANGE,
            find: "if let Some(merge) = patches.merge_of(idx) {",
            replace: "if let Some(merge) = patches.merge_of(idx).filter(|_| false) {",
        }],
        caught_by: SOME,
    },
    Mutation {
        name: "identity-unchecked",
        fault: "A component that is loaded already is used whatever adapters are asked for.",
        edits: &[Edit {
            file: CHANGE,
            find: "if state.patches.id == patches.id {",
            replace: "if state.patches.id == patches.id || state.loaded.is_some() {",
        }],
        caught_by: SOME,
    },
    Mutation {
        name: "old-merges-kept",
        fault: "Residents with the old adapters merged in stay when others are put on: the upscale flow's bug.",
        edits: &[Edit { file: CHANGE, find: "                state.residents[idx] = None;", replace: "" }],
        caught_by: SOME,
    },
    Mutation {
        name: "adapters-of-users-changed",
        fault: "Adapters are changed under somebody who uses the component.",
        edits: &[Edit {
            file: MANAGER,
            find: "if let Some(wanted) = request.wanted.iter().find(is_changed) {",
            replace: "if let Some(wanted) = request.wanted.iter().find(is_changed).filter(|_| false) {",
        }],
        caught_by: SOME,
    },
    Mutation {
        name: "wrong-unit",
        fault: "A lease gets the copy of whatever unit comes next.",
        edits: &[Edit {
            file: RING,
            find: "let flight = match self.in_flight.iter().position(|flight| flight.unit == unit) {",
            replace: "let flight = match self.in_flight.iter().position(|flight| flight.unit.0 >= unit.0) {",
        }],
        caught_by: SOME,
    },
    Mutation {
        name: "failed-copy-keeps-its-bytes",
        fault: "The ring's bytes are never given back after a copy into them has failed.",
        edits: &[Edit {
            file: RING,
            find: "let buffer = acquired.inspect_err(|_| self.give_back(&range, vec![ready]))?;",
            replace: "drop(ready);
        let buffer = acquired?;",
        }],
        caught_by: SOME,
    },
    Mutation {
        name: "stale-reserve",
        fault: "A plan reckons with the ring that it would need if one unit less were streamed.",
        edits: &[Edit {
            file: CHAIN,
            find: "        if streamed_count > 0 {
            window.remove(rank.order()[streamed_count - 1]);
        }
    }
    candidates.reverse();",
            replace: "        if streamed_count > 0 {
            window.remove(rank.order()[streamed_count - 1]);
            if let Some(last) = candidates.last_mut() {
                last.minimum_ring = window.worst();
                last.preferred_ring = window.worst();
            }
        }
    }
    candidates.reverse();",
        }],
        caught_by: SOME,
    },
    Mutation {
        name: "smallest-first-with-a-stale-reserve",
        fault: "Shrinking by `largest-first`, the smallest units first, keeps the reserve that it had.",
        edits: &[Edit {
            file: LARGEST_FIRST,
            find: "            choice.stream(self.costs[idx].reserve);",
            replace: "            choice.streamed_count += 1;",
        }],
        caught_by: SOME,
    },
    Mutation {
        name: "plans-not-nested",
        fault: "Every other budget streams by the reversed rank.",
        edits: &[Edit {
            file: PLANNER,
            find: "Some(position) => Ok(spread_plan(&self.units, &self.rank, position, self.fixed)),",
            replace: "Some(position) if available.0 % 2 == 0 => {
                    Ok(spread_plan(&self.units, &self.rank, position, self.fixed))
                }
                Some(position) => {
                    let rank = Rank::from_order(self.rank.order().iter().rev().copied().collect());
                    Ok(spread_plan(&self.units, &rank, position, self.fixed))
                }",
        }],
        caught_by: SOME,
    },
    Mutation {
        name: "registry-forgets-on-error",
        fault: "After a load that failed, components are no longer reached by eviction.",
        edits: &[
            Edit {
                file: REGISTRY,
                find: "    /// What is alive now.",
                replace: "    /// Lists nothing any more.
    pub fn forget(&self) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// What is alive now.",
            },
            Edit {
                file: MANAGER,
                find: "        if loaded.is_err() {",
                replace: "        if loaded.is_err() {
            self.components.forget();",
            },
        ],
        caught_by: SOME,
    },
    Mutation {
        name: "nothing-restored",
        fault: "A load that fails leaves everything as it was when it failed.",
        edits: &[Edit {
            file: MANAGER,
            find: "books.is_unsettled |= !self.restore(&books, &before);",
            replace: "let _ = &before;",
        }],
        caught_by: SOME,
    },
    Mutation {
        name: "hold-forgotten",
        fault: "Every seventh hold is not given back.",
        edits: &[Edit {
            file: MANAGER,
            find: "let Some(position) = books.holds.iter().position(|hold| hold.id == id) else { return };",
            replace: "let Some(position) = books.holds.iter().position(|hold| hold.id == id && id % 7 != 0) else { return };",
        }],
        caught_by: SOME,
    },
    Mutation {
        name: "leases-ignored",
        fault: "A component is unloaded under leases.",
        edits: &[Edit {
            file: CHANGE,
            find: "        let mut state = self.lock();
        if state.is_leased() {
            return Err(ChangeError::Leased);
        }
        state.rest();
        state.residents.fill(None);",
            replace: "        let mut state = self.lock();
        state.rest();
        state.residents.fill(None);",
        }],
        caught_by: SOME,
    },
    Mutation {
        name: "reservations-forgotten",
        fault: "Half of what runs have reserved for activations, and don't use yet, is planned with.",
        edits: &[Edit {
            file: MANAGER,
            find: "foreign.saturating_add(reserved.max(others_now))",
            replace: "foreign.saturating_add(others_now.max(ByteCount(reserved.0 / 2)))",
        }],
        caught_by: SOME,
    },
    Mutation {
        name: "next-use-reversed",
        fault: "What is used next is evicted first.",
        edits: &[Edit {
            file: MANAGER,
            find: "victims.sort_by_key(|component| std::cmp::Reverse(next_use(component)));",
            replace: "victims.sort_by_key(next_use);",
        }],
        caught_by: MANY,
    },
    Mutation {
        name: "polled-budget",
        fault: "A budget that sinks is followed when somebody settles, not at once.",
        edits: &[Edit {
            file: MANAGER,
            find: "        self.device.ledger().set_budget(budget);
        self.rebalance(&mut books)",
            replace: "        self.device.ledger().set_budget(budget);
        books.is_unsettled = true;
        Ok(())",
        }],
        caught_by: SOME,
    },
    Mutation {
        name: "ratchet",
        fault: "After a squeeze nothing comes back.",
        edits: &[Edit {
            file: MANAGER,
            find: "if is_loaded && needed <= occupancy.capacity && !is_worth_growing(&now, &shared.plans) {",
            replace: "if is_loaded && needed <= occupancy.capacity {",
        }],
        caught_by: SOME,
    },
    Mutation {
        name: "delayed-changes-forgotten",
        fault: "A change of the budget that leases were in the way of is never made up for.",
        edits: &[Edit {
            file: MANAGER,
            find: "if books.is_unsettled { self.rebalance(&mut books) } else { Ok(()) }",
            replace: "books.is_unsettled = false;
        Ok(())",
        }],
        caught_by: SOME,
    },
    Mutation {
        name: "last-byte-refused",
        fault: "`<` for `<=`: the last byte of the budget can't be had.",
        edits: &[Edit { file: LEDGER, find: "if size > available {", replace: "if size >= available {" }],
        caught_by: SOME,
    },
    Mutation {
        name: "one-byte-over",
        fault: "One byte above the budget can be had. The simulated units are larger, so the ledger's own tests tell.",
        edits: &[Edit {
            file: LEDGER,
            find: "if size > available {",
            replace: "if size > available + ByteCount(1) {",
        }],
        caught_by: Check::TestsOf("plimsoll-device"),
    },
    Mutation {
        name: "idle-ring-forgotten",
        fault: "A load does not reckon with what idle components hold.",
        edits: &[Edit {
            file: MANAGER,
            find: "idle: idle.iter().map(|component| component.held_bytes()).sum(),",
            replace: "idle: idle.iter().map(|component| component.held_bytes()).min().unwrap_or(ByteCount::ZERO),",
        }],
        caught_by: SOME,
    },
    Mutation {
        name: "order-by-address",
        fault: "Of components that are used equally late, whichever lies lower in memory is evicted first.",
        edits: &[Edit {
            file: MANAGER,
            find: "victims.sort_by_key(|component| std::cmp::Reverse(next_use(component)));",
            replace: "victims.sort_by_key(|component| {
            (std::cmp::Reverse(next_use(component)), (Arc::as_ptr(component) as usize / 64).wrapping_mul(0x9e37_79b9) & 0xffff)
        });",
        }],
        caught_by: MANY,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_to_be_replaced_occurs_once() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for Mutation { name, edits, .. } in MUTATIONS {
            for Edit { file, find, .. } in *edits {
                let text = std::fs::read_to_string(root.join(file)).unwrap();
                assert_eq!(text.matches(find).count(), 1, "{name}: {find:?} in {file}");
            }
        }
    }
}
