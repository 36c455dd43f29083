//! Operations that move the line: budgets, neighbours, and the way down after a failed allocation.

use plimsoll_device::{ByteCount, Device};
use plimsoll_residency::{LoadError, Plan};

use super::broken::{Checked, Invariant, broken, ensure};
use super::draw::Draw;
use super::invariants::held_bytes;
use super::loads::told;
use super::rig::{Line, Rig};
use super::story::Story;

/// A move of the line, or of what others hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    Budget(ByteCount),
    Foreign(ByteCount),
    /// No move: what leases were in the way of.
    Settle,
}

/// A move to wherever: below what is needed, above everything, or between.
pub(crate) fn draw_move(rig: &Rig, story: &mut Story) -> Move {
    let draw = &mut story.draw;
    let total = rig.scenario.total;
    if draw.chance(0.4) {
        let most = if draw.chance(0.2) { total } else { rig.budget().0 / 2 };
        return Move::Foreign(if draw.chance(0.4) { ByteCount::ZERO } else { ByteCount(draw.below(most + 1)) });
    }
    let budget = match draw.below(8) {
        0 => draw.below(total / 8 + 1),
        1 => 2 * total,
        2 => rig.budget().0 + draw.below(total / 20 + 1),
        3 => rig.budget().0 - draw.below(rig.budget().0 / 20 + 1),
        _ => draw.between(total / 8, total + total / 2 + 1),
    };
    Move::Budget(ByteCount(budget.min(rig.device.options().memory.0)))
}

/// Moves the line, and checks what must hold whatever comes of it.
pub(crate) fn move_line(rig: &mut Rig, story: &mut Story, to: Move) -> Checked {
    let ledger = rig.device.ledger().clone();
    let idle_before = idle_bytes(rig);
    let outcome = match to {
        Move::Budget(budget) => rig.manager.set_budget(budget),
        Move::Foreign(foreign) => {
            rig.device.neighbour_takes(foreign);
            rig.manager.set_foreign(foreign)
        }
        Move::Settle => rig.manager.settle(),
    };
    story.tell(format!("{to:?} at {:?}: {}", ledger.budget(), told(&outcome)));
    let is_settling = matches!(to, Move::Settle);
    let had_to_settle = rig.line == Line::Unsettled || rig.can_settle();
    rig.was_leased = rig.lease_count > 0;
    rig.line = match &outcome {
        // Settling does nothing where no lease was in the way.
        Ok(()) if is_settling && rig.line != Line::Unsettled && !rig.are_all_loaded() => rig.line,
        Ok(()) if is_settling && !had_to_settle => rig.line,
        Ok(()) => {
            rig.may_rest = false;
            Line::Settled
        }
        Err(LoadError::DoesNotFit { needed, budget, .. }) => {
            ensure(needed > budget && *budget == ledger.budget(), Invariant::Progress, || told(&outcome))?;
            Line::Starved
        }
        Err(LoadError::Held { .. }) if rig.lease_count > 0 => Line::Unsettled,
        Err(LoadError::Held { .. }) => return broken(Invariant::Progress, format!("no lease, but {}", told(&outcome))),
        Err(LoadError::Alloc { .. } | LoadError::Device { .. }) => {
            let is_excused = rig.is_faulty() || rig.armed.is_some();
            ensure(is_excused, Invariant::Progress, || format!("nothing was wrong, but {}", told(&outcome)))?;
            Line::Disturbed
        }
    };
    rig.may_rest |= outcome.is_err();
    story.note(match rig.line {
        Line::Settled => "moves of the line followed",
        Line::Unsettled => "moves delayed by leases",
        Line::Starved => "moves below what is needed",
        Line::Disturbed => "moves that failed",
    });
    rig.check(story)?;
    // What was evicted may have been larger than what came into its place.
    let has_evicted = idle_bytes(rig) < idle_before;
    if is_settling || has_evicted { Ok(()) } else { residency_follows(rig) }
}

/// 9: the need that a move of the line tells is exact.
pub(crate) fn need_is_exact(rig: &mut Rig, story: &mut Story) -> Checked {
    let line = rig.budget();
    // A rank that was made anew meanwhile may need less than was told.
    move_line(rig, story, Move::Budget(line))?;
    let Err(LoadError::DoesNotFit { needed, .. }) = rig.manager.set_budget(line) else { return Ok(()) };
    if needed > rig.device.options().memory {
        return Ok(());
    }
    move_line(rig, story, Move::Budget(needed - ByteCount(1)))?;
    ensure(rig.line == Line::Starved, Invariant::Progress, || format!("{needed} were needed, but a byte less did"))?;
    move_line(rig, story, Move::Budget(needed))?;
    ensure(rig.line == Line::Settled, Invariant::Progress, || format!("{needed} were needed, but did not do"))?;
    if story.draw.chance(0.5) { move_line(rig, story, Move::Budget(line)) } else { Ok(()) }
}

/// 8: once a squeeze has ended, residency is back: what more there would be room for is not worth a change.
fn residency_follows(rig: &Rig) -> Checked {
    let &[model] = &rig.in_use()[..] else { return Ok(()) };
    let set = rig.set_in_use(model).expect("it is in use");
    if rig.line != Line::Settled || rig.lease_count > 0 {
        return Ok(());
    }
    let component = rig.component(model);
    let Some(plan) = component.plan() else { return Ok(()) };
    let reserved: ByteCount = rig.runs.iter().map(|run| run.reserved).sum();
    let idle = idle_bytes(rig);
    let beside = ByteCount(rig.models[model].shape.sets[set].beside_bytes());
    let others = reserved + idle + beside + rig.device.ledger().foreign();
    let Ok(possible) = rig.manager.planner(component).plan(rig.budget().saturating_sub(others)) else { return Ok(()) };
    let weights = plan.resident_bytes + plan.streamed_bytes;
    let hysteresis = plan.ring_bytes.max(ByteCount(weights.0 / 50));
    ensure(possible.resident_bytes <= plan.resident_bytes + hysteresis, Invariant::NoThrash, || {
        format!("m{model} keeps {} where {} could stay", plan.resident_bytes, possible.resident_bytes)
    })
}

/// Bytes of what nobody uses.
fn idle_bytes(rig: &Rig) -> ByteCount {
    let idle = (0..rig.models.len()).filter(|&model| !rig.is_in_use(model));
    idle.map(|model| held_bytes(&rig.component(model).report())).sum()
}

/// Makes room for what the device had no memory for; 9: unless nothing is left to make it of. Tells whether it was made.
pub(crate) fn step_down(rig: &mut Rig, story: &mut Story, missing: ByteCount) -> Checked<bool> {
    let is_calm = rig.is_calm();
    let most = shrinkable(rig);
    let outcome = rig.manager.step_down(missing);
    story.tell(format!("step down by {missing:?}: {}", told(&outcome)));
    story.note(if outcome.is_ok() { "steps down" } else { "steps down refused" });
    match &outcome {
        Ok(()) => {
            if let Some(run) = rig.runs.last_mut() {
                run.reserved += missing.max(ByteCount(1));
            }
        }
        Err(LoadError::DoesNotFit { .. }) => {
            ensure(!is_calm || missing + rig.shortfall_unit() > most, Invariant::Progress, || {
                format!("{missing} are missing and {most} can be given, but {}", told(&outcome))
            })?;
        }
        Err(LoadError::Held { .. }) if rig.lease_count > 0 => {}
        Err(error) => {
            ensure(!is_calm, Invariant::Progress, || format!("stepping down: {error}"))?;
            rig.may_rest = true;
        }
    }
    rig.check(story)?;
    Ok(outcome.is_ok())
}

/// What plans in use can become smaller by, and what is idle.
fn shrinkable(rig: &Rig) -> ByteCount {
    let models = (0..rig.models.len()).map(|model| {
        let component = rig.component(model);
        let is_used = rig.is_in_use(model);
        let spare = |plan: Plan| plan.total_bytes().saturating_sub(rig.manager.planner(component).least_bytes());
        if is_used { component.plan().map_or(ByteCount::ZERO, spare) } else { held_bytes(&component.report()) }
    });
    models.sum()
}
