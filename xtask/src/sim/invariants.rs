//! What must hold after every operation.

use plimsoll_device::{ByteCount, Device, MemoryReport};
use plimsoll_residency::{ComponentReport, Policy};
use plimsoll_sim::{MemoryChange, ViolationKind};

use super::broken::{Checked, Invariant, broken, ensure};
use super::draw::Draw;
use super::rig::{Line, Rig};
use super::story::Story;

/// Checks all that can be seen from outside at any moment.
pub(crate) fn check(rig: &Rig) -> Checked {
    accesses_are_ordered(rig)?;
    accounts_are_exact(rig)?;
    components_are_as_planned(rig)?;
    below_the_line(rig)?;
    reservations_are_kept(rig)
}

/// 1 and 2: the simulator saw no access out of order.
fn accesses_are_ordered(rig: &Rig) -> Checked {
    let violations = rig.device.violations();
    let Some(violation) = violations.first() else { return Ok(()) };
    let invariant = match violation.kind {
        ViolationKind::WriteUnorderedAfterRead => Invariant::ReuseIsOrdered,
        _ => Invariant::ReadsAreOrdered,
    };
    broken(invariant, violation.to_string())
}

/// 3: the ledger's accounts, the allocator's bytes, the components' and the activations are the same bytes.
fn accounts_are_exact(rig: &Rig) -> Checked {
    let wrong = |message| broken(Invariant::AccountsAreExact, message);
    let report = rig.manager.report();
    let memory = &report.memory;
    let rows: ByteCount = memory.accounts.iter().map(|row| row.bytes).sum();
    let live = rig.device.live_bytes();
    let foreign = rig.device.ledger().foreign();
    if rows != memory.used_bytes || memory.used_bytes != live + foreign {
        return wrong(format!("accounts {rows}, used {}, live {live} and foreign {foreign}", memory.used_bytes));
    }
    let mut known = foreign + rig.activation_bytes();
    for component in &report.components {
        let ComponentReport { name, resident_bytes, ring_bytes, adapter_bytes, .. } = component;
        for (kind, bytes) in [("weights", resident_bytes), ("ring", ring_bytes), ("adapters", adapter_bytes)] {
            let booked = account_bytes(memory, &format!("{name}.{kind}"));
            if booked != *bytes {
                return wrong(format!("`{name}.{kind}` has {bytes} by its report, {booked} by the ledger"));
            }
        }
        known += held_bytes(component);
    }
    if known != memory.used_bytes {
        return wrong(format!("{} are in use, but only {known} have an owner", memory.used_bytes));
    }
    let reserved: ByteCount = rig.runs.iter().map(|run| run.reserved).sum();
    let held: ByteCount = report.holds.iter().map(|hold| hold.reserved_bytes).sum();
    ensure(reserved == held && report.holds.len() == rig.runs.len(), Invariant::AccountsAreExact, || {
        format!("{} holds reserve {held}; {} were made, of {reserved}", report.holds.len(), rig.runs.len())
    })
}

/// 3: each component is as a plan says, or at rest.
fn components_are_as_planned(rig: &Rig) -> Checked {
    for (idx, model) in rig.models.iter().enumerate() {
        let report = model.component.report();
        let ComponentReport { name, loaded, resident_bytes, ring_bytes, adapter_bytes } = &report;
        let Some(plan) = model.component.plan() else {
            ensure(!loaded && *ring_bytes == ByteCount::ZERO, Invariant::AccountsAreExact, || {
                format!("`{name}` is at rest with a ring of {ring_bytes}")
            })?;
            if rig.is_in_use(idx) && !rig.may_rest {
                return broken(Invariant::Progress, format!("`{name}` is in use, but at rest for no reason"));
            }
            continue;
        };
        let ring_planned = if plan.streamed_count() > 0 { plan.ring_bytes } else { ByteCount::ZERO };
        if (*resident_bytes, *ring_bytes) != (plan.resident_bytes, ring_planned) {
            let message =
                format!("`{name}` has residents of {resident_bytes} and a ring of {ring_bytes}, not as {plan:?}");
            return broken(Invariant::AccountsAreExact, message);
        }
        if let Some(set) = rig.set_in_use(idx) {
            let shape = &model.shape.sets[set];
            let wanted = ByteCount(shape.beside_bytes());
            ensure(*adapter_bytes == wanted, Invariant::AccountsAreExact, || {
                format!("`{name}` has adapters of {adapter_bytes}, its set of {wanted}")
            })?;
            ensure(model.component.patches().0 == shape.id, Invariant::AdaptersApplyOnce, || {
                format!("`{name}` has the adapters {}, not {}", model.component.patches(), shape.id)
            })?;
        }
    }
    Ok(())
}

/// 4: unless leases or a failure were in the way of the last move of the line, everything is below it.
fn below_the_line(rig: &Rig) -> Checked {
    let ledger = rig.device.ledger();
    let excess = ledger.excess();
    let components: ByteCount = rig.manager.report().components.iter().map(held_bytes).sum();
    let is_excused = match rig.line {
        Line::Settled => false,
        Line::Unsettled | Line::Disturbed => true,
        // Leases keep what they lease; activations and neighbours are not the manager's to take.
        Line::Starved => components == ByteCount::ZERO || rig.was_leased,
    };
    ensure(excess == ByteCount::ZERO || is_excused, Invariant::BelowTheLine, || {
        format!("{} in use, {excess} above the line, {components} of it components", ledger.used())
    })
}

/// 4: every allocation since the last check was below the line when it was made.
pub(crate) fn allocations_are_below_the_line(rig: &Rig, changes: &[MemoryChange], live_before: i64) -> Checked<i64> {
    let (budget, foreign) = (rig.budget(), rig.device.ledger().foreign());
    let mut live = live_before;
    for MemoryChange { account, bytes, .. } in changes {
        live += bytes;
        let used = foreign + ByteCount(live.try_into().unwrap_or_default());
        ensure(*bytes <= 0 || used <= budget, Invariant::BelowTheLine, || {
            format!("{bytes} bytes for `{account}` make {used}, the line is at {budget}")
        })?;
    }
    Ok(live)
}

/// 12: what is planned and what is reserved fit below the line together.
fn reservations_are_kept(rig: &Rig) -> Checked {
    if rig.line != Line::Settled || rig.lease_count > 0 {
        return Ok(());
    }
    let entitled = entitled_bytes(rig);
    ensure(entitled <= rig.budget(), Invariant::ReservationsHold, || {
        format!("plans, reservations and what is idle take {entitled}, the line is at {}", rig.budget())
    })
}

/// All that somebody may count on, and what is idle.
fn entitled_bytes(rig: &Rig) -> ByteCount {
    let reserved: ByteCount = rig.runs.iter().map(|run| run.reserved).sum();
    let models = rig.models.iter().enumerate().map(|(idx, model)| {
        let held = held_bytes(&model.component.report());
        match (model.component.plan(), rig.set_in_use(idx)) {
            (Some(plan), Some(set)) => plan.total_bytes() + ByteCount(model.shape.sets[set].beside_bytes()),
            _ => held,
        }
    });
    models.sum::<ByteCount>() + reserved.max(rig.activation_bytes()) + rig.device.ledger().foreign()
}

/// 7: with more memory, more stays; plans fit, and the least is exact.
pub(crate) fn plans_nest(rig: &Rig, story: &mut Story) -> Checked {
    for model in &rig.models {
        let planner = rig.manager.planner(&model.component);
        let least = planner.least_bytes();
        let total = model.shape.sizes.iter().sum::<u64>() + least.0;
        let mut budgets: Vec<u64> = (0..6).map(|_| story.draw.between(least.0, total + 1)).collect();
        budgets.extend([least.0, total]);
        budgets.sort_unstable();
        let mut smaller: Option<Vec<bool>> = None;
        for budget in budgets.into_iter().map(ByteCount) {
            let Ok(plan) = planner.plan(budget) else {
                return broken(Invariant::Progress, format!("no plan for {budget}, though {least} are said to do"));
            };
            let name = &model.shape.name;
            ensure(plan.total_bytes() <= budget, Invariant::BelowTheLine, || {
                format!("the plan of `{name}` for {budget} takes {}", plan.total_bytes())
            })?;
            if let Some(smaller) = smaller.replace(plan.resident.clone()) {
                let nests = smaller.iter().zip(&plan.resident).all(|(before, after)| !before | after);
                let must_nest = rig.scenario.manager.policy == Policy::Spread;
                ensure(nests || !must_nest, Invariant::PlansNest, || format!("`{name}` loses residents at {budget}"))?;
            }
        }
        let short = planner.plan(least.saturating_sub(ByteCount(1)));
        let needed = short.err().map(|error| error.needed);
        ensure(needed == Some(least), Invariant::Progress, || {
            format!("a byte below the least of {least}, {needed:?} are said to be needed")
        })?;
    }
    Ok(())
}

/// All bytes of a component.
pub(crate) fn held_bytes(report: &ComponentReport) -> ByteCount {
    report.resident_bytes + report.ring_bytes + report.adapter_bytes
}

fn account_bytes(memory: &MemoryReport, name: &str) -> ByteCount {
    memory.accounts.iter().find(|row| row.name == name).map_or(ByteCount::ZERO, |row| row.bytes)
}
