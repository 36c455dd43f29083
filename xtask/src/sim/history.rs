//! A random history: which operation comes next.

use std::sync::Arc;

use plimsoll_device::{ByteCount, Device};
use plimsoll_residency::Policy;
use plimsoll_sim::Fault;

use super::broken::{Checked, Invariant, ensure};
use super::draw::Draw;
use super::invariants::{held_bytes, plans_nest};
use super::line::{Move, draw_move, move_line, need_is_exact, step_down};
use super::loads::{LoadEnd, draw_ask, everything_is_evictable, expect, load, replace, shortfall_is_exact, unload};
use super::rig::{Line, Rig};
use super::scenario::Scenario;
use super::steps::{Manner, StepEnd, passes_are_steady, step};
use super::story::Story;

/// Whether leases are sometimes taken on the second queue first.
pub(crate) const LEASES_START_ON_SIDE: bool = true;
/// How deep loads are nested within steps.
const DEPTH_MAX: usize = 3;

/// The whole history of a seed.
pub(crate) fn run(seed: u64, story: &mut Story) -> Checked {
    let mut rigs: Vec<Rig> = Vec::new();
    for scenario in Scenario::all(seed) {
        story.tell(format!("{} {:?}, {:?}", scenario.device.index, scenario.manager, scenario.device));
        for model in &scenario.models {
            story.tell(format!("{}: {:?}", model.name, model.sizes));
            model.sets.iter().for_each(|set| story.tell(format!("  {set:?}")));
        }
        let first = rigs.first().map(|first| first.device.clone());
        rigs.push(Rig::new(scenario, first.as_deref()));
    }
    let count = story.draw.between(20, 81);
    for idx in 0..count {
        let rig_idx = story.draw.below(rigs.len() as u64) as usize;
        let rig = &mut rigs[rig_idx];
        if rig.is_lost {
            break;
        }
        story.tell(format!("-- {idx} on sim:{rig_idx}"));
        operation(rig, story).inspect_err(|_| tell_state(rig, story))?;
    }
    for (idx, rig) in rigs.iter_mut().enumerate() {
        story.tell(format!("-- end of sim:{idx}"));
        end(rig, story)?;
    }
    Ok(())
}

/// Writes down what there is, for whoever looks for the reason.
fn tell_state(rig: &Rig, story: &mut Story) {
    story.depth = 0;
    let report = rig.manager.report();
    story.tell(format!("{:?}, {} leases, {:?}", rig.line, rig.lease_count, report.memory));
    for component in &report.components {
        let plan = rig.models.iter().find(|model| model.component.name() == component.name);
        story.tell(format!("{component:?} {:?}", plan.and_then(|model| model.component.plan())));
    }
    report.holds.iter().for_each(|hold| story.tell(format!("{hold:?}")));
}

fn operation(rig: &mut Rig, story: &mut Story) -> Checked {
    let run_count = rig.runs.len() as u64;
    match story.draw.below(100) {
        0..20 => load_something(rig, story),
        20..50 if run_count > 0 => {
            let run = story.draw.below(run_count) as usize;
            run_step(rig, story, run)
        }
        50..56 if run_count > 0 => {
            let run = story.draw.below(run_count) as usize;
            if rig.is_calm() { passes_are_steady(rig, story, run) } else { Ok(()) }
        }
        56..66 => {
            let to = draw_move(rig, story);
            move_line(rig, story, to)?;
            if rig.line == Line::Starved && !rig.is_faulty() { need_is_exact(rig, story) } else { Ok(()) }
        }
        66..69 => squeeze(rig, story),
        69..72 => move_line(rig, story, Move::Settle),
        72..76 if run_count > 0 && rig.is_calm() => {
            let missing = ByteCount(story.draw.below(rig.budget().0 / 8 + 1));
            let made = step_down(rig, story, missing)?;
            let run = rig.runs.len() - 1;
            if made { rig.fill(story, run).map(drop) } else { Ok(()) }
        }
        76..79 => {
            let model = story.draw.below(rig.models.len() as u64) as usize;
            unload(rig, story, model)
        }
        79..81 => {
            let model = story.draw.below(rig.models.len() as u64) as usize;
            if rig.is_in_use(model) { Ok(()) } else { replace(rig, story, model) }
        }
        81..84 if run_count == 0 && rig.is_calm() => everything_is_evictable(rig, story),
        84..87 => plans_nest(rig, story),
        87..89 => {
            expect(rig, story);
            Ok(())
        }
        89..91 => synchronize(rig, story),
        91 => {
            if story.draw.chance(0.8) {
                estimate(rig, story);
            } else {
                story.tell("the device will be lost");
                rig.is_doomed = true;
                rig.device.fail_next(Fault::DeviceLost);
            }
            Ok(())
        }
        92.. if run_count > 0 => {
            let run = story.draw.below(run_count) as usize;
            rig.end_run(story, run)
        }
        _ => load_something(rig, story),
    }
}

/// What comes in the middle of a step of `run`, leases or not.
pub(crate) fn interrupt(rig: &mut Rig, story: &mut Story, run: usize) -> Checked {
    if rig.is_lost {
        return Ok(());
    }
    story.note("interruptions of a step");
    match story.draw.below(10) {
        0..3 => {
            let to = draw_move(rig, story);
            move_line(rig, story, to)
        }
        3..7 if story.depth < DEPTH_MAX => nested(rig, story, run),
        7 => {
            let model = story.draw.below(rig.models.len() as u64) as usize;
            unload(rig, story, model)
        }
        8 => plans_nest(rig, story),
        _ => synchronize(rig, story),
    }
}

/// A ControlNet, a VAE, a preview: something loaded while the step goes on, used, and mostly ended.
fn nested(rig: &mut Rig, story: &mut Story, run: usize) -> Checked {
    let ask = draw_ask(rig, story);
    if load(rig, story, &ask, None)? != LoadEnd::Loaded {
        return Ok(());
    }
    let inner = rig.runs.len() - 1;
    let manner = Manner::draw(story);
    step(rig, story, inner, manner)?;
    if story.draw.chance(0.8) {
        while rig.runs.len() > run + 1 {
            rig.end_run(story, rig.runs.len() - 1)?;
        }
    }
    Ok(())
}

/// Loads, sometimes with a fault on order; what does not fit is asked for again at the line that is said to do.
fn load_something(rig: &mut Rig, story: &mut Story) -> Checked {
    if rig.runs.len() > 4 {
        return rig.end_run(story, 0);
    }
    let ask = draw_ask(rig, story);
    let fault = (!rig.is_faulty() && story.draw.chance(0.15))
        .then(|| story.draw.one_of(&[Fault::Allocation, Fault::Allocation, Fault::ShortRead, Fault::ShortRead]));
    let is_calm = rig.is_calm();
    if let LoadEnd::DoesNotFit(needed) = load(rig, story, &ask, fault)?
        && is_calm
        && story.draw.chance(0.7)
    {
        shortfall_is_exact(rig, story, &ask, needed)?;
    }
    Ok(())
}

/// A step, sometimes with a fault on order. What can't go on, or was cancelled, is sometimes ended.
fn run_step(rig: &mut Rig, story: &mut Story, run: usize) -> Checked {
    let manner = Manner::draw(story);
    if !rig.is_faulty() && story.draw.chance(0.1) {
        let fault = story.draw.one_of(&[Fault::Allocation, Fault::ShortRead, Fault::SlowCopy]);
        rig.arm(story, fault);
    }
    let end = step(rig, story, run, manner)?;
    rig.disarm();
    let is_over = match end {
        StepEnd::Done | StepEnd::Ended => false,
        StepEnd::Cancelled => story.draw.chance(0.7),
        _ => story.draw.chance(0.4),
    };
    if is_over { rig.end_run(story, run) } else { Ok(()) }
}

/// 8: a neighbour comes and goes, and then what was resident is resident again.
fn squeeze(rig: &mut Rig, story: &mut Story) -> Checked {
    let was_settled = rig.line == Line::Settled && rig.device.ledger().foreign() == ByteCount::ZERO;
    let before: ByteCount = rig.in_use().iter().map(|&model| resident_bytes(rig, model)).sum();
    let reserved: ByteCount = rig.runs.iter().map(|run| run.reserved).sum();
    let taken = ByteCount(story.draw.below(rig.budget().0 + 1));
    move_line(rig, story, Move::Foreign(taken))?;
    if let Some(run) = rig.runs.len().checked_sub(1) {
        step(rig, story, run, Manner::PLAIN)?;
    }
    move_line(rig, story, Move::Foreign(ByteCount::ZERO))?;
    let in_use = rig.in_use();
    let has_stepped_down = reserved != rig.runs.iter().map(|run| run.reserved).sum();
    if has_stepped_down
        || !was_settled
        || rig.line != Line::Settled
        || rig.scenario.manager.policy != Policy::Spread
        || rig.is_faulty()
    {
        return Ok(());
    }
    let plans: Vec<_> = in_use.iter().filter_map(|&model| rig.component(model).plan()).collect();
    let after: ByteCount = plans.iter().map(|plan| plan.resident_bytes).sum();
    let rings: ByteCount = plans.iter().map(|plan| plan.ring_bytes).sum();
    let weights: ByteCount = plans.iter().map(|plan| plan.resident_bytes + plan.streamed_bytes).sum();
    // A rank made anew meanwhile may fill the room differently, by a unit of each; and what was loaded one after the
    // other, whole perhaps, shares the room now, with a ring each.
    let largest = |&model: &usize| ByteCount(rig.models[model].shape.sizes.iter().copied().max().unwrap_or(0));
    let shared_rings = if in_use.len() > 1 { rings } else { ByteCount::ZERO };
    let slack = rings.max(ByteCount(weights.0 / 50)) + in_use.iter().map(largest).sum() + shared_rings;
    ensure(after + slack >= before, Invariant::NoThrash, || {
        format!("{before} were resident before {taken} were taken and given back, {after} after")
    })
}

fn resident_bytes(rig: &Rig, model: usize) -> ByteCount {
    rig.component(model).report().resident_bytes
}

fn synchronize(rig: &mut Rig, story: &mut Story) -> Checked {
    let queue = if story.draw.chance(0.5) { rig.compute.clone() } else { rig.side.clone() };
    story.tell(format!("synchronize {}", queue.name()));
    queue.synchronize().or_else(|error| rig.note_loss(&error))
}

fn estimate(rig: &mut Rig, story: &mut Story) {
    let model = story.draw.below(rig.models.len() as u64) as usize;
    let component = Arc::clone(rig.component(model));
    let seconds = component.units().iter().map(|_| story.draw.fraction()).collect();
    story.tell(format!("estimate m{model}"));
    component.estimate(seconds);
}

/// 6, 11: all is cancelled; every component can be unloaded, and at last no byte is in use.
fn end(rig: &mut Rig, story: &mut Story) -> Checked {
    while !rig.runs.is_empty() {
        let run = story.draw.below(rig.runs.len() as u64) as usize;
        rig.end_run(story, run)?;
    }
    rig.device.neighbour_takes(ByteCount::ZERO);
    for model in 0..rig.models.len() {
        unload(rig, story, model)?;
        let held = held_bytes(&rig.component(model).report());
        ensure(held == ByteCount::ZERO, Invariant::EverythingIsEvictable, || format!("m{model} keeps {held}"))?;
    }
    let live = rig.device.live_bytes();
    ensure(live == ByteCount::ZERO, Invariant::CancelReturnsAll, || format!("{live} are left after all is unloaded"))?;
    rig.models.clear();
    let alive = rig.manager.components().len();
    ensure(alive == 0, Invariant::CancelReturnsAll, || format!("{alive} components live on"))
}
