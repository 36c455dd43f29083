//! Operations that load, unload and drop components.

use std::sync::Arc;

use plimsoll_device::{AllocError, ByteCount};
use plimsoll_residency::{LoadError, LoadRequest, PatchSetId, Plan, Wanted};
use plimsoll_sim::Fault;

use super::broken::{Checked, Invariant, broken, ensure};
use super::draw::Draw;
use super::invariants::held_bytes;
use super::line::{Move, move_line};
use super::model::Model;
use super::rig::{Line, Rig, Run};
use super::story::Story;

/// What is to be loaded.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// Models, each with its set of adapters.
    pub(crate) members: Vec<(usize, usize)>,
    pub(crate) passes: usize,
    pub(crate) reserved: ByteCount,
}

/// How an attempt to load ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LoadEnd {
    /// It is the last of the runs.
    Loaded,
    DoesNotFit(ByteCount),
    /// Something else went wrong, and may.
    Failed,
}

/// Something to load; mostly models that aren't in use, or with the adapters that they are in use with.
pub(crate) fn draw_ask(rig: &Rig, story: &mut Story) -> Ask {
    let draw = &mut story.draw;
    let count = if draw.chance(0.6) { 1 } else { draw.between(1, rig.models.len() as u64 + 1) as usize };
    let members = draw.shuffled(rig.models.len()).into_iter().take(count);
    let members = members.map(|model| {
        let drawn = draw.below(rig.models[model].shape.sets.len() as u64) as usize;
        let set = if draw.chance(0.95) { rig.set_in_use(model) } else { None };
        (model, set.unwrap_or(drawn))
    });
    let members = members.collect();
    let budget = rig.budget().0;
    let reserved = match draw.below(8) {
        0 => 0,
        1..4 => draw.below(budget / 16 + 1),
        4..7 => draw.below(budget / 3 + 1),
        _ => draw.below(budget + 1),
    };
    Ask { members, passes: draw.one_of(&[1, 2, 20]), reserved: ByteCount(reserved) }
}

/// Tries to load, with a fault on order or without, and checks what must hold whatever comes of it.
pub(crate) fn load(rig: &mut Rig, story: &mut Story, ask: &Ask, fault: Option<Fault>) -> Checked<LoadEnd> {
    let before = Before::of(rig, ask);
    if let Some(fault) = fault {
        rig.arm(story, fault);
    }
    let outcome = ask.attempt(rig);
    let has_struck = rig.disarm();
    story.tell(format!("load {ask:?} at {:?}: {}", rig.budget(), told(&outcome)));
    let may_fail = rig.is_faulty() || has_struck || rig.line != Line::Settled;
    let end = match outcome {
        Ok(_) if ask.changes_adapters(rig) => {
            return broken(Invariant::AdaptersApplyOnce, "the adapters of what somebody uses were changed");
        }
        Ok(loaded) => {
            let (members, reserved) = (ask.members.clone(), ask.reserved);
            rig.runs.push(Run { loaded, members, reserved, activations: Vec::new() });
            before.was_sound(rig, ask)?;
            rig.upcoming.retain(|upcoming| ask.members.iter().all(|(model, _)| model != upcoming));
            rig.check(story)?;
            story.note("loads");
            return Ok(LoadEnd::Loaded);
        }
        Err(LoadError::DoesNotFit { needed, budget, .. }) => {
            ensure(needed > budget && budget == rig.budget(), Invariant::Progress, || {
                format!("{needed} don't fit below {budget}, the line is at {}", rig.budget())
            })?;
            story.note("loads that do not fit");
            LoadEnd::DoesNotFit(needed)
        }
        Err(LoadError::Held { component, holders }) => {
            let is_held = rig.lease_count > 0 || ask.changes_adapters(rig);
            ensure(is_held, Invariant::Progress, || format!("nobody holds `{component}`: {holders:?}"))?;
            story.note("loads that others are in the way of");
            LoadEnd::Failed
        }
        Err(LoadError::Alloc { source: AllocError::OverBudget { .. }, .. }) if rig.line == Line::Settled => {
            return broken(Invariant::ReservationsHold, told(&outcome));
        }
        Err(LoadError::Alloc { .. } | LoadError::Device { .. }) => {
            ensure(may_fail, Invariant::Progress, || format!("nothing was wrong, but {}", told(&outcome)))?;
            story.note("loads that fail");
            LoadEnd::Failed
        }
    };
    if rig.is_faulty() || rig.line != Line::Settled {
        rig.may_rest = true;
    } else {
        before.is_restored(rig, ask)?;
    }
    rig.check(story)?;
    Ok(end)
}

impl Ask {
    /// Whether something in use is wanted with other adapters than it is in use with.
    fn changes_adapters(&self, rig: &Rig) -> bool {
        let mut members = self.members.iter();
        members.any(|&(model, set)| rig.set_in_use(model).is_some_and(|in_use| in_use != set))
    }

    fn attempt(&self, rig: &Rig) -> Result<plimsoll_residency::Loaded, LoadError> {
        let sets: Vec<_> = self.members.iter().map(|&(model, set)| rig.models[model].patch_set(set)).collect();
        let components = self.members.iter().map(|&(model, _)| rig.component(model));
        let wanted =
            components.zip(&sets).map(|(component, patches)| Wanted { component, patches, passes: self.passes });
        let wanted: Vec<_> = wanted.collect();
        let holder = format!("run {}", rig.runs.len());
        rig.manager.load(&LoadRequest { holder: &holder, wanted: &wanted, activation_bytes: self.reserved })
    }
}

/// What a load that fails must leave as it was.
struct Before {
    in_use: Vec<(usize, Option<Plan>)>,
    patches: Vec<PatchSetId>,
    /// Bytes of each model, with its next use, where it was idle.
    idle: Vec<(usize, ByteCount)>,
}

impl Before {
    fn of(rig: &Rig, ask: &Ask) -> Self {
        let plan = |model| (model, rig.component(model).plan());
        let is_idle = |&model: &usize| !rig.is_in_use(model) && ask.members.iter().all(|member| member.0 != model);
        let held = |model| (model, held_bytes(&rig.component(model).report()));
        Self {
            in_use: rig.in_use().into_iter().map(plan).collect(),
            patches: ask.members.iter().map(|&(model, _)| rig.component(model).patches()).collect(),
            idle: (0..rig.models.len()).filter(is_idle).map(held).collect(),
        }
    }

    /// 6, 9: a load that succeeded has evicted by next use, and what was in use still is.
    fn was_sound(&self, rig: &Rig, ask: &Ask) -> Checked {
        for &(model, _) in &ask.members {
            ensure(rig.component(model).plan().is_some(), Invariant::Progress, || format!("m{model} isn't loaded"))?;
        }
        let now = |model: usize| held_bytes(&rig.component(model).report());
        for &(shrunk, before) in &self.idle {
            for &(spared, _) in &self.idle {
                let is_sooner = rig.next_use(shrunk) < rig.next_use(spared);
                let is_wrong = is_sooner && now(shrunk) < before && now(spared) > ByteCount::ZERO;
                ensure(!is_wrong || rig.lease_count > 0, Invariant::EverythingIsEvictable, || {
                    format!("m{shrunk} was evicted although m{spared} is used later and keeps {}", now(spared))
                })?;
            }
        }
        Ok(())
    }

    /// 9: a load that failed has left what was in use, and the adapters, as they were.
    fn is_restored(&self, rig: &Rig, ask: &Ask) -> Checked {
        for (model, plan) in &self.in_use {
            let now = rig.component(*model).plan();
            let is_restored =
                now == *plan || rig.may_rest && plan.is_none() || rig.lease_count > 0 && is_shrunk(plan, &now);
            ensure(is_restored, Invariant::Progress, || {
                format!("a failed load left m{model} as {}, it was {}", told_plan(&now), told_plan(plan))
            })?;
        }
        for (&(model, _), patches) in ask.members.iter().zip(&self.patches) {
            let now = rig.component(model).patches();
            ensure(now == *patches, Invariant::AdaptersApplyOnce, || {
                format!("a failed load left m{model} with the adapters {now}, it had {patches}")
            })?;
        }
        Ok(())
    }
}

/// 9: with the bytes that are said to be needed it fits, with all of the reservation in use; with one less it does not.
///
/// What is in use may happen to take less than its planner's least: kept whole under `largest-first`, which asks for a
/// byte more, or by a rank that has been made anew since. It may fit with less then. A rank made anew between being told
/// and being asked again may need more; that is told, and then holds.
pub(crate) fn shortfall_is_exact(rig: &mut Rig, story: &mut Story, ask: &Ask, needed: ByteCount) -> Checked {
    let (line, mut needed) = (rig.budget(), needed);
    let mut end = LoadEnd::DoesNotFit(needed);
    for _ in 0..2 {
        let LoadEnd::DoesNotFit(told) = end else { break };
        needed = told;
        if needed > rig.device.options().memory {
            return move_line(rig, story, Move::Budget(line));
        }
        move_line(rig, story, Move::Budget(needed))?;
        end = load(rig, story, ask, None)?;
    }
    ensure(end == LoadEnd::Loaded, Invariant::Progress, || format!("{needed} were said to be needed, but {end:?}"))?;
    let least = least_bytes(rig);
    rig.fill(story, rig.runs.len() - 1)?;
    rig.end_run(story, rig.runs.len() - 1)?;
    move_line(rig, story, Move::Budget(needed.saturating_sub(ByteCount(1))))?;
    let is_below_least = rig.in_use().into_iter().any(|model| is_below_least(rig, model));
    let end = load(rig, story, ask, None)?;
    match end {
        LoadEnd::Loaded if is_below_least || least_bytes(rig) < least => rig.end_run(story, rig.runs.len() - 1)?,
        LoadEnd::DoesNotFit(_) => {}
        end => return broken(Invariant::Progress, format!("a byte below the {needed} that are needed: {end:?}")),
    }
    move_line(rig, story, Move::Budget(line))
}

/// What the smallest plans of all that is in use take.
fn least_bytes(rig: &Rig) -> ByteCount {
    rig.in_use().into_iter().map(|model| rig.manager.planner(rig.component(model)).least_bytes()).sum()
}

/// Whether a model takes less than the planner's least.
fn is_below_least(rig: &Rig, model: usize) -> bool {
    let component = rig.component(model);
    component.plan().is_some_and(|plan| plan.total_bytes() < rig.manager.planner(component).least_bytes())
}

/// 6: a load that takes all there is gets it: nothing idle keeps a byte.
pub(crate) fn everything_is_evictable(rig: &mut Rig, story: &mut Story) -> Checked {
    let mut ask = draw_ask(rig, story);
    ask.members.truncate(1);
    ask.reserved = rig.budget();
    let LoadEnd::DoesNotFit(needed) = load(rig, story, &ask, None)? else {
        return broken(Invariant::Progress, "a component fits in no bytes");
    };
    let excess = needed - rig.budget();
    let Some(reserved) = rig.budget().0.checked_sub(excess.0) else { return Ok(()) };
    ask.reserved = ByteCount(reserved);
    let end = load(rig, story, &ask, None)?;
    ensure(end == LoadEnd::Loaded, Invariant::Progress, || format!("{excess} less were to fit, but {end:?}"))?;
    for model in (0..rig.models.len()).filter(|&model| model != ask.members[0].0) {
        let held = held_bytes(&rig.component(model).report());
        ensure(held == ByteCount::ZERO, Invariant::EverythingIsEvictable, || format!("idle m{model} keeps {held}"))?;
    }
    rig.fill(story, rig.runs.len() - 1)?;
    rig.end_run(story, rig.runs.len() - 1)
}

/// Unloads a model; 6, 11: what nobody uses can be unloaded, and then has no bytes.
pub(crate) fn unload(rig: &mut Rig, story: &mut Story, model: usize) -> Checked {
    let outcome = rig.manager.unload(rig.component(model));
    story.tell(format!("unload m{model}: {outcome:?}"));
    let is_used = rig.is_in_use(model);
    match outcome {
        Ok(()) => {
            let held = held_bytes(&rig.component(model).report());
            ensure(held == ByteCount::ZERO && !is_used, Invariant::EverythingIsEvictable, || {
                format!("m{model} is unloaded, used: {is_used}, and keeps {held}")
            })?;
        }
        Err(LoadError::Held { holders, .. }) => {
            let is_excused = is_used || rig.lease_count > 0;
            ensure(is_excused && !holders.is_empty(), Invariant::CancelReturnsAll, || {
                format!("m{model} can't be unloaded, held by {holders:?}")
            })?;
        }
        Err(error) => return broken(Invariant::EverythingIsEvictable, format!("unloading m{model}: {error}")),
    }
    rig.check(story)
}

/// Drops a component that nobody uses, and makes it anew.
pub(crate) fn replace(rig: &mut Rig, story: &mut Story, model: usize) -> Checked {
    story.tell(format!("replace m{model}"));
    let shape = rig.models[model].shape.clone();
    let count = rig.manager.components().len();
    drop(rig.models.remove(model));
    ensure(rig.manager.components().len() + 1 == count, Invariant::CancelReturnsAll, || {
        format!("m{model} lives on after it was dropped")
    })?;
    rig.upcoming.retain(|&upcoming| upcoming != model);
    rig.models.insert(model, Model::new(&shape, &rig.device, &rig.manager));
    rig.check(story)
}

/// Says what is used next.
pub(crate) fn expect(rig: &mut Rig, story: &mut Story) {
    let mut upcoming = story.draw.shuffled(rig.models.len());
    upcoming.truncate(story.draw.between(0, rig.models.len() as u64 + 1) as usize);
    story.tell(format!("expect {upcoming:?}"));
    let components: Vec<&Arc<_>> = upcoming.iter().map(|&model| rig.component(model)).collect();
    rig.manager.expect(&components);
    rig.upcoming = upcoming;
}

/// Whether a plan has become smaller beside the ring it had: a leased ring is in the way of growing back.
fn is_shrunk(before: &Option<Plan>, now: &Option<Plan>) -> bool {
    let (Some(before), Some(now)) = (before, now) else { return false };
    let mut residents = before.resident.iter().zip(&now.resident);
    before.ring_bytes == now.ring_bytes && residents.all(|(before, now)| before | !now)
}

pub(crate) fn told<T, E: std::fmt::Display>(outcome: &Result<T, E>) -> String {
    outcome.as_ref().err().map_or("done".to_owned(), ToString::to_string)
}

fn told_plan(plan: &Option<Plan>) -> String {
    let told = |plan: &Plan| {
        let residents: String = plan.resident.iter().map(|resident| if *resident { 'R' } else { 's' }).collect();
        format!("{residents} with a ring of {}", plan.ring_bytes)
    };
    plan.as_ref().map_or("at rest".to_owned(), told)
}
