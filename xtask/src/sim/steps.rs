//! A denoise step: all units of what is loaded, leased one after the other, and what may come between.

use std::sync::Arc;

use plimsoll_device::{AllocError, ByteCount, DeviceError, Queue};
use plimsoll_residency::{Component, Lease, LeaseError, UnitId};
use plimsoll_sim::{Content, Fault};

use super::broken::{Checked, Invariant, broken, ensure};
use super::draw::Draw;
use super::history;
use super::line::{Move, move_line, step_down};
use super::rig::{Line, Rig};
use super::story::Story;

/// How often a lease is tried before the step is given up.
const ATTEMPTS_MAX: usize = 8;

/// How units are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    /// In order, one lease at a time, on the compute queue, and nothing comes between.
    pub(crate) is_plain: bool,
    /// Some units are skipped, repeated, or visited elsewhere in the order.
    pub(crate) is_scattered: bool,
    /// How many leases are held at once, if there is room.
    pub(crate) held_max: usize,
    /// Work on a second queue reads the weights too.
    pub(crate) on_side: bool,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepEnd {
    Done,
    /// Room was made for what was missing; to be repeated.
    Repeat,
    /// It can't go on, for a reason that excuses it.
    Stopped,
    /// It was given up halfway.
    Cancelled,
    /// So was the run, before its leases were dropped.
    Ended,
}

impl Manner {
    pub(crate) const PLAIN: Self = Self { is_plain: true, is_scattered: false, held_max: 1, on_side: false };

    pub(crate) fn draw(story: &mut Story) -> Self {
        let draw = &mut story.draw;
        let is_plain = draw.chance(0.3);
        let is_scattered = draw.chance(0.25);
        let held_max = draw.one_of(&[1, 1, 1, 2, 3, 6]);
        let on_side = draw.chance(0.3);
        if is_plain { Self::PLAIN } else { Self { is_plain, is_scattered, held_max, on_side } }
    }
}

/// A step, repeated from its start as often as room could be made for it.
pub(crate) fn step(rig: &mut Rig, story: &mut Story, run: usize, manner: Manner) -> Checked<StepEnd> {
    for _ in 0..ATTEMPTS_MAX {
        match attempt(rig, story, run, manner)? {
            StepEnd::Repeat => story.note(StepEnd::Repeat.name()),
            end => {
                story.note(end.name());
                return Ok(end);
            }
        }
    }
    Ok(StepEnd::Stopped)
}

impl StepEnd {
    fn name(self) -> &'static str {
        match self {
            Self::Done => "steps done",
            Self::Repeat => "steps repeated",
            Self::Stopped => "steps stopped",
            Self::Cancelled => "steps cancelled",
            Self::Ended => "steps ended by their run",
        }
    }
}

fn attempt(rig: &mut Rig, story: &mut Story, run: usize, manner: Manner) -> Checked<StepEnd> {
    if let Some(missing) = rig.fill(story, run)? {
        rig.disarm();
        let can_go_on = rig.lease_count == 0 && step_down(rig, story, missing)?;
        return Ok(if can_go_on { StepEnd::Repeat } else { StepEnd::Stopped });
    }
    story.tell(format!("step of run {run}, {manner:?}"));
    let members = rig.runs[run].members.clone();
    let leases_before = rig.lease_count;
    story.depth += 1;
    let mut walk = Walk { run, manner, state: Content::default(), is_whole: !manner.is_scattered };
    let mut end = StepEnd::Done;
    for (model, set) in members.iter().copied() {
        end = walk.pass(rig, story, model, set)?;
        if end != StepEnd::Done {
            break;
        }
    }
    story.depth -= 1;
    ensure(rig.lease_count == leases_before, Invariant::CancelReturnsAll, || "leases are left".to_owned())?;
    story.tell(format!("step of run {run}: {end:?}"));
    if end == StepEnd::Done && walk.is_whole {
        let expected = rig.reference.step(&members);
        ensure(walk.state == expected, Invariant::SameBits, || {
            format!("a step over {members:?} computes {:x?}, resident it computes {expected:x?}", walk.state)
        })?;
    }
    rig.check(story)?;
    Ok(end)
}

/// The way of one step through the units.
struct Walk {
    run: usize,
    manner: Manner,
    /// What was computed so far.
    state: Content,
    /// Whether each unit was visited once, in order.
    is_whole: bool,
}

impl Walk {
    fn pass(&mut self, rig: &mut Rig, story: &mut Story, model: usize, set: usize) -> Checked<StepEnd> {
        let component = rig.component(model).clone();
        let (compute, side) = (rig.compute.clone(), rig.side.clone());
        let mut held = Held { leases: Vec::new() };
        let mut end = StepEnd::Done;
        for unit in self.visits(story, component.units().len()) {
            if !self.manner.is_plain && story.draw.chance(0.01) {
                end = self.cancel(rig, story)?;
                break;
            }
            if !self.manner.is_plain && story.draw.chance(0.04) {
                history::interrupt(rig, story, self.run)?;
            }
            let on_side = self.manner.on_side && story.draw.chance(0.3);
            let starts_on_side = on_side && history::LEASES_START_ON_SIDE && story.draw.chance(0.5);
            let (first, second) = if starts_on_side { (&side, &compute) } else { (&compute, &side) };
            end = held.take(rig, story, &component, unit, first)?;
            if end != StepEnd::Done {
                break;
            }
            self.compute(rig, &held, (model, set, unit), first)?;
            if on_side {
                held.share(rig, &component, unit, second)?;
            }
            if rig.is_lost {
                end = StepEnd::Stopped;
                break;
            }
            let most = self.manner.held_max;
            while held.leases.len() >= most {
                let first_out = story.draw.chance(0.7);
                held.drop_one(rig, if first_out { 0 } else { held.leases.len() - 1 });
            }
            if rig.can_settle() {
                move_line(rig, story, Move::Settle)?;
            }
            rig.check(story)?;
        }
        held.drop_all(rig);
        if rig.can_settle() {
            move_line(rig, story, Move::Settle)?;
        }
        Ok(end)
    }

    /// Gives up; sometimes whoever loaded is gone before the leases are.
    fn cancel(&self, rig: &mut Rig, story: &mut Story) -> Checked<StepEnd> {
        if story.depth > 1 || story.draw.chance(0.5) {
            return Ok(StepEnd::Cancelled);
        }
        rig.end_run(story, self.run)?;
        Ok(StepEnd::Ended)
    }

    fn visits(&self, story: &mut Story, unit_count: usize) -> Vec<usize> {
        let mut visits: Vec<usize> = (0..unit_count).collect();
        if self.manner.is_scattered {
            for _ in 0..story.draw.between(1, 6) {
                let at = story.draw.below(visits.len() as u64) as usize;
                match story.draw.below(3) {
                    0 if visits.len() > 1 => drop(visits.remove(at)),
                    1 => visits.insert(at, story.draw.below(unit_count as u64) as usize),
                    _ => {
                        let other = story.draw.below(visits.len() as u64) as usize;
                        visits.swap(at, other);
                    }
                }
            }
        }
        visits
    }

    /// 5: a kernel reads the lease taken last, and sees the unit with its adapters.
    fn compute(
        &mut self,
        rig: &mut Rig,
        held: &Held<'_>,
        at: (usize, usize, usize),
        queue: &Arc<dyn Queue>,
    ) -> Checked {
        let (model, _, unit) = at;
        let lease = held.leases.last().expect("a lease was just taken");
        let shape = &rig.models[model].shape;
        let name = format!("{}.{unit}", shape.name);
        let reads: Vec<_> = [Some(lease.buffer()), lease.adapter()].into_iter().flatten().collect();
        let seen = match rig.device.compute(&**queue, &name, shape.seconds[unit], &reads, &mut []) {
            Ok(seen) => seen,
            Err(error) => return rig.note_loss(&error),
        };
        sees_unit(rig, at, &seen)?;
        let mut inputs = vec![std::mem::take(&mut self.state)];
        inputs.extend(seen);
        self.state = Content::of_output(&name, &inputs);
        Ok(())
    }
}

/// 5: what a kernel saw is the unit, with each of its adapters once.
fn sees_unit(rig: &Rig, (model, set, unit): (usize, usize, usize), seen: &[Content]) -> Checked {
    let mut expected = vec![rig.models[model].expected(unit, set)];
    expected.extend(rig.models[model].expected_beside(unit, set));
    ensure(seen == expected, Invariant::AdaptersApplyOnce, || {
        format!("a kernel sees {seen:x?} of m{model}.{unit} with set {set}, not {expected:x?}")
    })
}

/// The leases of one component that are held, the newest last.
struct Held<'a> {
    leases: Vec<Lease<'a>>,
}

/// Leases are left here only where an invariant is broken. To drop them might panic then, and hide what is to be told.
impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.leases.drain(..).for_each(std::mem::forget);
    }
}

impl<'a> Held<'a> {
    /// 9: takes another lease, or tells why it can't be had; what nothing excuses breaks the invariant.
    fn take(
        &mut self,
        rig: &mut Rig,
        story: &mut Story,
        component: &'a Component,
        unit: usize,
        queue: &'a Arc<dyn Queue>,
    ) -> Checked<StepEnd> {
        for _ in 0..ATTEMPTS_MAX {
            let error = match component.lease(UnitId(unit), queue) {
                Ok(lease) => {
                    self.leases.push(lease);
                    rig.lease_count += 1;
                    return Ok(StepEnd::Done);
                }
                Err(error) => error,
            };
            story.tell(format!("lease {} unit {unit}: {error}", component.name()));
            let was_alone = rig.lease_count == 0;
            let had_own = !self.leases.is_empty();
            self.drop_all(rig);
            let end = match error {
                LeaseError::RingLeased { .. } => {
                    ensure(!was_alone, Invariant::Progress, || format!("nothing is leased, but {error}"))?;
                    story.note("leases refused by a full ring");
                    if had_own { None } else { Some(StepEnd::Stopped) }
                }
                LeaseError::NotLoaded { .. } => self.not_loaded(rig, story, component)?,
                LeaseError::Device(DeviceError::Upload { .. }) => {
                    let is_excused = rig.may_fail(Fault::ShortRead) || std::mem::take(&mut rig.has_failed_ahead);
                    ensure(is_excused, Invariant::Progress, || format!("nothing was wrong, but {error}"))?;
                    None
                }
                LeaseError::Device(DeviceError::Alloc(error)) => Some(no_memory(rig, story, &error)?),
                LeaseError::Device(error @ DeviceError::Lost { .. }) => {
                    rig.note_loss(&error)?;
                    Some(StepEnd::Stopped)
                }
            };
            rig.check(story)?;
            if let Some(end) = end {
                return Ok(end);
            }
        }
        ensure(rig.is_faulty(), Invariant::Progress, || {
            format!("unit {unit} of {component:?} can't be leased", component = component.name())
        })?;
        Ok(StepEnd::Stopped)
    }

    /// The component is at rest. What leases were in the way of is done now, and then it may be back.
    fn not_loaded(&self, rig: &mut Rig, story: &mut Story, component: &Component) -> Checked<Option<StepEnd>> {
        ensure(rig.may_rest, Invariant::Progress, || format!("`{}` is at rest for no reason", component.name()))?;
        if !rig.can_settle() {
            return Ok(Some(StepEnd::Stopped));
        }
        move_line(rig, story, Move::Settle)?;
        Ok(component.plan().is_none().then_some(StepEnd::Stopped))
    }

    /// Work on another queue reads the newest lease too.
    fn share(&mut self, rig: &mut Rig, component: &Component, unit: usize, queue: &'a Arc<dyn Queue>) -> Checked {
        let lease = self.leases.last_mut().expect("a lease was just taken");
        if let Err(LeaseError::Device(error)) = lease.also_on(queue) {
            return rig.note_loss(&error);
        }
        let name = format!("{} on the side", component.units()[unit].name());
        let reads: Vec<_> = [Some(lease.buffer()), lease.adapter()].into_iter().flatten().collect();
        match rig.device.compute(&**queue, &name, 1e-5, &reads, &mut []) {
            Ok(_) => Ok(()),
            Err(error) => rig.note_loss(&error),
        }
    }

    fn drop_one(&mut self, rig: &mut Rig, idx: usize) {
        drop(self.leases.remove(idx));
        rig.lease_count -= 1;
    }

    fn drop_all(&mut self, rig: &mut Rig) {
        while !self.leases.is_empty() {
            self.drop_one(rig, 0);
        }
    }
}

/// There was no memory for merging. Room is made, and the step repeated.
fn no_memory(rig: &mut Rig, story: &mut Story, error: &AllocError) -> Checked<StepEnd> {
    let (is_excused, needed) = match error {
        AllocError::OverBudget { needed, .. } => (rig.line != Line::Settled, *needed),
        AllocError::Exhausted { needed, .. } => (rig.may_fail(Fault::Allocation), *needed),
    };
    ensure(is_excused, Invariant::ReservationsHold, || error.to_string())?;
    rig.disarm();
    if rig.lease_count > 0 {
        return Ok(StepEnd::Stopped);
    }
    if rig.can_settle() {
        move_line(rig, story, Move::Settle)?;
        return Ok(StepEnd::Repeat);
    }
    let made = step_down(rig, story, needed)?;
    Ok(if made { StepEnd::Repeat } else { StepEnd::Stopped })
}

/// 8: constant passes copy each streamed unit once a pass, in order.
pub(crate) fn passes_are_steady(rig: &mut Rig, story: &mut Story, run: usize) -> Checked {
    let members = rig.runs[run].members.clone();
    for _ in 0..2 {
        if step(rig, story, run, Manner::PLAIN)? != StepEnd::Done {
            return Ok(());
        }
    }
    let before: Vec<ByteCount> = members.iter().map(|&(model, _)| asked_bytes(rig, model)).collect();
    rig.copies = Some(Vec::new());
    for _ in 0..2 {
        step(rig, story, run, Manner::PLAIN)?;
    }
    let copies = rig.copies.take().unwrap_or_default();
    for (&(model, _), before) in members.iter().zip(before) {
        let component = rig.component(model);
        let Some(plan) = component.plan() else { continue };
        let asked = asked_bytes(rig, model) - before;
        ensure(asked == plan.streamed_bytes * 2, Invariant::NoThrash, || {
            format!("two passes of m{model} ask for {asked}, a pass streams {}", plan.streamed_bytes)
        })?;
        let prefix = format!("{}.", component.name());
        let copied: Vec<usize> = copies.iter().filter_map(|name| name.strip_prefix(&prefix)?.parse().ok()).collect();
        let streamed: Vec<usize> = (0..plan.resident.len()).filter(|&unit| !plan.resident[unit]).collect();
        let first = copied.first().and_then(|first| streamed.iter().position(|unit| unit == first));
        if !streamed.is_empty() {
            story.note("steady passes of a streamed component");
        }
        let cycle = streamed.iter().cycle().skip(first.unwrap_or(0));
        let is_cyclic = copied.iter().zip(cycle).all(|(copied, streamed)| copied == streamed);
        let surplus = copied.len().abs_diff(2 * streamed.len());
        ensure(is_cyclic && surplus < streamed.len().max(1), Invariant::NoThrash, || {
            format!("two passes of m{model} copy the units {copied:?}; {streamed:?} are streamed")
        })?;
    }
    Ok(())
}

fn asked_bytes(rig: &Rig, model: usize) -> ByteCount {
    rig.component(model).traffic().streamed_bytes
}

impl Rig {
    /// The device is lost; that may be, or not.
    pub(crate) fn note_loss(&mut self, error: &DeviceError) -> Checked {
        let is_loss = matches!(error, DeviceError::Lost { .. }) && self.may_fail(Fault::DeviceLost);
        if !is_loss {
            return broken(Invariant::Progress, format!("nothing was wrong, but {error}"));
        }
        self.is_lost = true;
        self.may_rest = true;
        Ok(())
    }
}
