//! Who may have how much of the device: the one place where components are loaded, shrunk, grown and unloaded.
//!
//! A load is a transaction over all its components: one plan for all of them, carried out by dropping first and copying
//! in last; whatever fails, every component is either as a plan says or at rest, and stays listed for as long as it
//! lives. What always holds: components, reservations and what others hold stay below the line together, for
//! every choice is made with all of them counted.
//!
//! Deliberately without a floor: the least that a component keeps while it is loaded is a planner's option.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_device::{ByteCount, Device, MemoryReport};
use serde::Serialize;

use crate::activation_peaks::ActivationPeaks;
use crate::component::{ChangeError, ComponentReport};
use crate::load_error::LoadError;
use crate::patch::PatchSet;
use crate::registry::Registry;
use crate::share::{Occupancy, Shared, share, shrink_in_turn};
use crate::{Component, Link, Plan, PlanOptions, Planner, Policy, Unit};

/// How components are planned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ManagerOptions {
    /// Which units stay.
    pub policy: Policy,
    /// Side queues for copies; 0 copies on the compute queue.
    pub offload_streams: usize,
    /// Bytes of residents that a loaded component keeps whatever its ring would need; eviction for others may take them.
    pub min_resident_bytes: ByteCount,
    /// The link to the device, if its speed is known; otherwise it is taken to be just fast enough for streaming
    /// everything during computation, where placement matters most.
    pub link: Option<Link>,
    /// Whether components keep their residents when nobody uses them, until the bytes are needed.
    pub keep_idle: bool,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        Self {
            policy: Policy::Spread,
            offload_streams: 0,
            min_resident_bytes: ByteCount::ZERO,
            link: None,
            keep_idle: true,
        }
    }
}

/// Manages the components of one device.
pub struct Manager {
    device: Arc<dyn Device>,
    options: ManagerOptions,
    components: Registry<Component>,
    books: Mutex<Books>,
    peaks: ActivationPeaks,
}

#[derive(Default)]
struct Books {
    holds: Vec<Hold>,
    next_hold_id: u64,
    /// What is known to be used next, in that order.
    upcoming: Vec<std::sync::Weak<Component>>,
    /// A change of the budget could not be followed because of leases, or bytes were given back since.
    is_unsettled: bool,
}

/// What somebody has loaded and reserved.
struct Hold {
    id: u64,
    holder: String,
    reserved: ByteCount,
    components: Vec<Arc<Component>>,
}

/// What is to be loaded together.
pub struct LoadRequest<'a> {
    /// Who asks, for messages.
    pub holder: &'a str,
    /// What is wanted.
    pub wanted: &'a [Wanted<'a>],
    /// The most that activations and workspaces will take at once meanwhile. Reserved until the [`Loaded`] is dropped,
    /// also against loads made meanwhile.
    pub activation_bytes: ByteCount,
}

/// A component that is wanted.
pub struct Wanted<'a> {
    /// Which.
    pub component: &'a Arc<Component>,
    /// The adapters it is to have.
    pub patches: &'a Arc<PatchSet>,
    /// How often it will be visited from end to end. For a single pass nothing else is evicted beyond what the smallest
    /// plan needs: streaming costs no more than loading would.
    pub passes: usize,
}

/// Components are loaded, and memory for their use is reserved, for as long as this lives.
pub struct Loaded {
    manager: Arc<Manager>,
    id: u64,
}

/// Components, reservations and bytes at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct ManagerReport {
    /// The ledger: its rows sum to the bytes in use.
    pub memory: MemoryReport,
    /// All components that live.
    pub components: Vec<ComponentReport>,
    /// Who holds what, and how much is reserved for it.
    pub holds: Vec<HoldReport>,
}

/// A hold, for reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HoldReport {
    /// Who.
    pub holder: String,
    /// Reserved for activations.
    pub reserved_bytes: ByteCount,
    /// The components' names.
    pub components: Vec<String>,
}

impl Manager {
    /// A manager of everything that is to be loaded on `device`.
    pub fn new(device: &Arc<dyn Device>, options: ManagerOptions) -> Arc<Self> {
        Self::with_peaks(device, options, ActivationPeaks::forgetful())
    }

    /// The same, with what earlier runs have measured of activations.
    pub fn with_peaks(device: &Arc<dyn Device>, options: ManagerOptions, peaks: ActivationPeaks) -> Arc<Self> {
        let (device, components, books) = (device.clone(), Registry::new(), Mutex::default());
        Arc::new(Self { device, options, components, books, peaks })
    }

    /// What was measured of activations.
    pub fn peaks(&self) -> &ActivationPeaks {
        &self.peaks
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// How components are planned.
    pub fn options(&self) -> &ManagerOptions {
        &self.options
    }

    /// Takes a component in, as a placeholder.
    pub fn add(&self, name: &str, units: Vec<Unit>) -> Arc<Component> {
        let component = Arc::new(Component::new(&self.device, name, units));
        self.components.register(&component);
        component
    }

    /// All components that live, in the order in which they were added.
    pub fn components(&self) -> Vec<Arc<Component>> {
        self.components.alive()
    }

    /// Says what will be used next, in that order. Of what is not in use, the last of it, or what is not mentioned, is
    /// evicted first.
    pub fn expect(&self, upcoming: &[&Arc<Component>]) {
        self.lock().upcoming = upcoming.iter().map(|component| Arc::downgrade(component)).collect();
    }

    /// Loads components together and reserves memory for their use.
    ///
    /// Adapters are compared before anything is reclaimed; those of what somebody has loaded can't be changed. Then one plan is made for all of them, with as much evicted of
    /// others as it needs: what is used last, first.
    ///
    /// # Errors
    /// [`LoadError`]. Then what was loaded before is as it was, or at rest where that is no longer to be had. What had to
    /// shrink while its ring was leased stays that small until [`settle`](Self::settle).
    pub fn load(self: &Arc<Self>, request: &LoadRequest<'_>) -> Result<Loaded, LoadError> {
        let mut books = self.lock();
        let before = self.snapshot(&books, request);
        let loaded = self.load_in(&mut books, request);
        if loaded.is_err() {
            books.is_unsettled |= !self.restore(&books, &before);
        }
        let id = loaded?;
        drop(books);
        Ok(Loaded { manager: self.clone(), id })
    }

    /// Whether [`load`](Self::load) would find room, with what nobody uses evicted. Changes nothing.
    ///
    /// # Errors
    /// [`LoadError::DoesNotFit`].
    pub fn check(&self, request: &LoadRequest<'_>) -> Result<(), LoadError> {
        let books = self.lock();
        let wanted: Vec<Arc<Component>> = request.wanted.iter().map(|wanted| wanted.component.clone()).collect();
        self.share_out(&books, &wanted, request.activation_bytes, false).map(drop)
    }

    fn load_in(&self, books: &mut Books, request: &LoadRequest<'_>) -> Result<u64, LoadError> {
        let is_changed = |wanted: &&Wanted<'_>| {
            wanted.component.patches() != wanted.patches.id && books.holds_of(wanted.component).next().is_some()
        };
        if let Some(wanted) = request.wanted.iter().find(is_changed) {
            return Err(self.load_error(books, wanted.component, ChangeError::Leased));
        }
        for wanted in request.wanted {
            wanted.component.adopt(wanted.patches).map_err(|error| self.load_error(books, wanted.component, error))?;
        }
        let wanted: Vec<Arc<Component>> = request.wanted.iter().map(|wanted| wanted.component.clone()).collect();
        let is_single_pass = request.wanted.iter().all(|wanted| wanted.passes <= 1);
        let (planned, shared) = self.share_out(books, &wanted, request.activation_bytes, is_single_pass)?;
        self.evict(books, &planned, shared.to_evict)?;
        self.carry_out(books, &planned, &shared.plans)?;
        let id = books.next_hold_id;
        books.next_hold_id += 1;
        let (holder, reserved) = (request.holder.to_owned(), request.activation_bytes);
        books.holds.push(Hold { id, holder, reserved, components: wanted.clone() });
        for component in &wanted {
            let used = books.upcoming.iter().position(|upcoming| upcoming.as_ptr() == Arc::as_ptr(component));
            used.map(|position| books.upcoming.remove(position));
        }
        Ok(id)
    }

    /// Plans for what is wanted, beside what is in use or, if that leaves too little, together with it.
    fn share_out(
        &self,
        books: &Books,
        wanted: &[Arc<Component>],
        activation_bytes: ByteCount,
        is_single_pass: bool,
    ) -> Result<(Vec<Arc<Component>>, Shared), LoadError> {
        let attempt = |planned: Vec<Arc<Component>>| {
            let occupancy = self.occupancy(books, &planned, activation_bytes);
            let planners: Vec<_> = planned.iter().map(|component| self.planner(component)).collect();
            match share(&occupancy, &planners, is_single_pass) {
                Ok(shared) => Ok((planned, shared)),
                Err(shortfall) => Err((planned, shortfall)),
            }
        };
        if let Ok(shared) = attempt(wanted.to_vec()) {
            return Ok(shared);
        }
        let mut all = wanted.to_vec();
        all.extend(books.in_use().into_iter().filter(|held| !wanted.iter().any(|other| Arc::ptr_eq(other, held))));
        attempt(all).map_err(|(all, shortfall)| shortfall.of(&names(&all), activation_bytes))
    }

    /// Frees all that `component` has on the device.
    ///
    /// # Errors
    /// [`LoadError::Held`] with the holders' names while somebody uses it.
    pub fn unload(&self, component: &Arc<Component>) -> Result<(), LoadError> {
        let books = self.lock();
        if books.holds_of(component).next().is_some() {
            return Err(self.load_error(&books, component, ChangeError::Leased));
        }
        component.unload().map_err(|error| self.load_error(&books, component, error))
    }

    /// Moves the line. Shrinks at once if it is crossed; grows what is in use if that gains more than it disturbs.
    ///
    /// # Errors
    /// [`LoadError::DoesNotFit`] if even the smallest plans of what is in use are too large. It is put to rest then, with
    /// no more than fits, until a budget that is large enough. [`LoadError::Held`] if a lease is in the way, and then [`settle`](Self::settle) tries again.
    pub fn set_budget(&self, budget: ByteCount) -> Result<(), LoadError> {
        let mut books = self.lock();
        self.device.ledger().set_budget(budget);
        self.rebalance(&mut books)
    }

    /// Says what other programs hold on the device. The same as a change of the budget.
    ///
    /// # Errors
    /// As for [`set_budget`](Self::set_budget).
    pub fn set_foreign(&self, foreign: ByteCount) -> Result<(), LoadError> {
        let mut books = self.lock();
        self.device.ledger().set_foreign(foreign);
        self.rebalance(&mut books)
    }

    /// Follows a change of the budget that leases were in the way of, and grows into what others have given back. To be
    /// called where no leases are held, such as between denoise steps; does nothing if nothing is left to do.
    ///
    /// # Errors
    /// As for [`set_budget`](Self::set_budget).
    pub fn settle(&self) -> Result<(), LoadError> {
        let mut books = self.lock();
        if books.is_unsettled { self.rebalance(&mut books) } else { Ok(()) }
    }

    /// Makes room of `missing` bytes, and by at least one unit's, for what is in use, after the device had no memory for
    /// an operation. The operation can be repeated then; the bytes stay reserved.
    ///
    /// # Errors
    /// [`LoadError::DoesNotFit`] when the smallest plans are carried out already.
    pub fn step_down(&self, missing: ByteCount) -> Result<(), LoadError> {
        let mut books = self.lock();
        let missing = missing.max(ByteCount(1));
        let in_use = books.in_use();
        let at_rest = self.reclaim_idle(&books, &in_use, missing);
        if at_rest < missing {
            let planners: Vec<_> = in_use.iter().map(|component| self.planner(component)).collect();
            let now: Vec<Option<Plan>> = in_use.iter().map(|component| component.plan()).collect();
            let held: ByteCount = now.iter().flatten().map(Plan::total_bytes).sum();
            let occupancy = Occupancy { capacity: held.saturating_sub(missing - at_rest), ..Occupancy::default() };
            let plans = match shrunk(&planners, &now, missing - at_rest) {
                Some(plans) => plans,
                None => {
                    let shared = share(&occupancy, &planners, false);
                    shared.map_err(|error| error.of(&names(&in_use), ByteCount::ZERO))?.plans
                }
            };
            self.carry_out(&books, &in_use, &plans)?;
        }
        if let Some(hold) = books.holds.last_mut() {
            hold.reserved += missing;
        }
        Ok(())
    }

    /// Everything at this moment.
    pub fn report(&self) -> ManagerReport {
        let books = self.lock();
        let hold = |hold: &Hold| HoldReport {
            holder: hold.holder.clone(),
            reserved_bytes: hold.reserved,
            components: names(&hold.components),
        };
        ManagerReport {
            memory: self.device.ledger().report(),
            components: self.components().iter().map(|component| component.report()).collect(),
            holds: books.holds.iter().map(hold).collect(),
        }
    }

    /// The planner for a component as it is.
    pub fn planner(&self, component: &Component) -> Arc<Planner> {
        let ManagerOptions { policy, offload_streams, min_resident_bytes, link, .. } = self.options;
        let staging_bytes = ByteCount::ZERO;
        component.planner(&PlanOptions { policy, offload_streams, min_resident_bytes, staging_bytes }, link)
    }

    fn release(&self, id: u64) {
        let mut books = self.lock();
        let Some(position) = books.holds.iter().position(|hold| hold.id == id) else { return };
        let hold = books.holds.remove(position);
        // What is given back here may be worth growing into, between two steps of whoever is left.
        books.is_unsettled = true;
        for component in hold.components {
            if books.holds_of(&component).next().is_some() {
                continue;
            }
            // Whoever still leases keeps what it leases; the next load waits for it.
            let _ = if self.options.keep_idle { component.rest() } else { component.unload() };
        }
    }

    /// What the device holds besides the components in `planned`.
    fn occupancy(&self, books: &Books, planned: &[Arc<Component>], wanted_reserve: ByteCount) -> Occupancy {
        let ledger = self.device.ledger();
        let is_planned = |component: &Arc<Component>| planned.iter().any(|other| Arc::ptr_eq(other, component));
        let components = self.components();
        let held: ByteCount = components.iter().map(|component| component.held_bytes()).sum();
        let foreign = ledger.foreign();
        let others_now = ledger.used().saturating_sub(held + foreign);
        let reserved: ByteCount = books.holds.iter().map(|hold| hold.reserved).sum();
        let adapters: ByteCount = planned.iter().map(|component| component.adapter_bytes_wanted()).sum();
        let (in_use, idle): (Vec<_>, Vec<_>) = components
            .into_iter()
            .filter(|component| !is_planned(component))
            .partition(|component| books.holds_of(component).next().is_some());
        Occupancy {
            capacity: ledger.budget(),
            fixed: foreign.saturating_add(reserved.max(others_now)).saturating_add(wanted_reserve) + adapters,
            in_use: in_use.iter().map(|component| self.entitled_bytes(component)).sum(),
            idle: idle.iter().map(|component| component.held_bytes()).sum(),
        }
    }

    /// What a component in use takes: what its plan says, which is more than it holds between copies, or what the smallest
    /// would say while it is at rest for want of memory; and its adapters.
    fn entitled_bytes(&self, component: &Component) -> ByteCount {
        let planned = component.plan().map_or_else(|| self.planner(component).least_bytes(), |plan| plan.total_bytes());
        (planned + component.adapter_bytes_wanted()).max(component.held_bytes())
    }

    /// Frees `to_evict` bytes of components that are not in use.
    fn evict(&self, books: &Books, planned: &[Arc<Component>], to_evict: ByteCount) -> Result<(), LoadError> {
        let freed = self.reclaim_idle(books, planned, to_evict);
        if freed >= to_evict {
            return Ok(());
        }
        let is_planned = |component: &Arc<Component>| planned.iter().any(|other| Arc::ptr_eq(other, component));
        let mut leased = self.components().into_iter().filter(|component| !is_planned(component));
        let leased = leased.find(|component| !component.leased_units().is_empty());
        let leased = leased.expect("what nobody leases can be evicted");
        Err(self.load_error(books, &leased, ChangeError::Leased))
    }

    /// Reclaims bytes of what is neither in use nor planned: what is used last first, in rank order within a component.
    fn reclaim_idle(&self, books: &Books, planned: &[Arc<Component>], to_free: ByteCount) -> ByteCount {
        let next_use = |component: &Arc<Component>| {
            let position = books.upcoming.iter().position(|upcoming| upcoming.as_ptr() == Arc::as_ptr(component));
            position.unwrap_or(usize::MAX)
        };
        let is_victim = |component: &Arc<Component>| {
            !planned.iter().any(|other| Arc::ptr_eq(other, component)) && books.holds_of(component).next().is_none()
        };
        let mut victims: Vec<_> = self.components().into_iter().filter(is_victim).collect();
        victims.sort_by_key(|component| std::cmp::Reverse(next_use(component)));
        let mut freed = ByteCount::ZERO;
        for component in victims {
            if freed >= to_free {
                break;
            }
            freed += component.reclaim(to_free - freed);
        }
        freed
    }

    /// Carries plans out: all of them shed before any copies in.
    fn carry_out(&self, books: &Books, components: &[Arc<Component>], plans: &[Plan]) -> Result<(), LoadError> {
        for change in [Component::check, Component::shed, Component::carry_out] {
            for (component, plan) in components.iter().zip(plans) {
                change(component, plan).map_err(|error| self.load_error(books, component, error))?;
            }
        }
        Ok(())
    }

    fn rebalance(&self, books: &mut Books) -> Result<(), LoadError> {
        let outcome = self.rebalance_in(books);
        books.is_unsettled = outcome.is_err();
        outcome
    }

    fn rebalance_in(&self, books: &Books) -> Result<(), LoadError> {
        let in_use = books.in_use();
        let planners: Vec<_> = in_use.iter().map(|component| self.planner(component)).collect();
        let occupancy = self.occupancy(books, &in_use, ByteCount::ZERO);
        let now: Vec<Option<Plan>> = in_use.iter().map(|component| component.plan()).collect();
        let needed = occupancy.fixed + occupancy.idle + now.iter().flatten().map(Plan::total_bytes).sum();
        if needed > occupancy.capacity {
            self.reclaim_idle(books, &in_use, needed - occupancy.capacity);
        }
        let occupancy = self.occupancy(books, &in_use, ByteCount::ZERO);
        let shared = match share(&occupancy, &planners, true) {
            Ok(shared) => shared,
            Err(error) => {
                self.give_way(books, &in_use)?;
                return Err(error.of(&names(&in_use), ByteCount::ZERO));
            }
        };
        let is_loaded = now.iter().all(Option::is_some);
        if is_loaded && needed <= occupancy.capacity && !is_worth_growing(&now, &shared.plans) {
            return Ok(());
        }
        let before: Vec<Snapshot> =
            in_use.iter().zip(&now).map(|(component, plan)| Snapshot::of(component, plan.clone())).collect();
        self.evict(books, &in_use, shared.to_evict)?;
        let still_needed = occupancy.fixed + occupancy.idle + now.iter().flatten().map(Plan::total_bytes).sum();
        let to_free = still_needed.saturating_sub(occupancy.capacity);
        let shrunk = (to_free > ByteCount::ZERO).then(|| shrunk(&planners, &now, to_free)).flatten();
        let changed = self.carry_out(books, &in_use, &shrunk.unwrap_or(shared.plans));
        if changed.is_err() {
            self.restore(books, &before);
        }
        changed
    }

    /// Puts components to rest and drops of them what is above the line.
    fn give_way(&self, books: &Books, in_use: &[Arc<Component>]) -> Result<(), LoadError> {
        for component in in_use {
            component.rest().map_err(|error| self.load_error(books, component, error))?;
            let excess = self.device.ledger().excess();
            if component.reclaim(excess) < excess && component.held_bytes() > ByteCount::ZERO {
                return Err(self.load_error(books, component, ChangeError::Leased));
            }
        }
        Ok(())
    }

    fn snapshot(&self, books: &Books, request: &LoadRequest<'_>) -> Vec<Snapshot> {
        let mut components = books.in_use();
        for wanted in request.wanted {
            if !components.iter().any(|component| Arc::ptr_eq(component, wanted.component)) {
                components.push(wanted.component.clone());
            }
        }
        components.iter().map(|component| Snapshot::of(component, component.plan())).collect()
    }

    /// Puts components back as they were, as far as that can be had again, and tells whether all of it could. Whatever else
    /// has come to the device meanwhile makes room for them.
    fn restore(&self, books: &Books, before: &[Snapshot]) -> bool {
        // What fails here leaves a component at rest; its next lease or load says so.
        for Snapshot { component, patches, plan, held } in before {
            let _ = component.adopt(patches);
            match plan {
                Some(plan) => drop(component.shed(plan)),
                // What was copied in meanwhile is more than others have left room for.
                None => drop(component.reclaim(component.held_bytes().saturating_sub(*held))),
            }
        }
        let loaded = || before.iter().filter_map(|snapshot| Some((&snapshot.component, snapshot.plan.as_ref()?)));
        let components: Vec<Arc<Component>> = loaded().map(|(component, _)| component.clone()).collect();
        let occupancy = self.occupancy(books, &components, ByteCount::ZERO);
        let plans: ByteCount = loaded().map(|(_, plan)| plan.total_bytes()).sum();
        let needed = occupancy.fixed + occupancy.in_use + occupancy.idle + plans;
        self.reclaim_idle(books, &components, needed.saturating_sub(occupancy.capacity));
        let restored: Vec<bool> = loaded().map(|(component, plan)| component.carry_out(plan).is_ok()).collect();
        !restored.contains(&false)
    }

    fn load_error(&self, books: &Books, component: &Arc<Component>, error: ChangeError) -> LoadError {
        let holders = books.holds_of(component).map(|hold| hold.holder.clone());
        let leases = component.leased_units().into_iter().map(|unit| format!("a lease of {unit}"));
        LoadError::of(component.name(), error, holders.chain(leases).collect())
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        // Whatever panics leaves books that list every hold.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A component as it was before a load.
struct Snapshot {
    component: Arc<Component>,
    patches: Arc<PatchSet>,
    plan: Option<Plan>,
    /// Its bytes on the device.
    held: ByteCount,
}

impl Snapshot {
    fn of(component: &Arc<Component>, plan: Option<Plan>) -> Self {
        Self { component: component.clone(), patches: component.patch_set(), plan, held: component.held_bytes() }
    }
}

impl Books {
    fn holds_of<'a>(&'a self, component: &'a Arc<Component>) -> impl Iterator<Item = &'a Hold> {
        self.holds.iter().filter(move |hold| hold.components.iter().any(|held| Arc::ptr_eq(held, component)))
    }

    /// The components in use, each once.
    fn in_use(&self) -> Vec<Arc<Component>> {
        let mut components: Vec<Arc<Component>> = Vec::new();
        for component in self.holds.iter().flat_map(|hold| &hold.components) {
            if !components.iter().any(|other| Arc::ptr_eq(other, component)) {
                components.push(component.clone());
            }
        }
        components
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.manager.release(self.id);
    }
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What is loaded, made smaller by its policy's own rule; if all of it is loaded and the rule can.
fn shrunk(planners: &[Arc<Planner>], now: &[Option<Plan>], to_free: ByteCount) -> Option<Vec<Plan>> {
    let now: Vec<Plan> = now.iter().cloned().collect::<Option<_>>()?;
    shrink_in_turn(planners, &now, to_free)
}

/// Growing must gain more residents than the ring, or than a fiftieth of the weights: smaller steps aren't worth the
/// disturbance, and a budget that trembles would cause one each time.
fn is_worth_growing(now: &[Option<Plan>], planned: &[Plan]) -> bool {
    let residents: ByteCount = now.iter().flatten().map(|plan| plan.resident_bytes).sum();
    let rings: ByteCount = now.iter().flatten().map(|plan| plan.ring_bytes).sum();
    let weights: ByteCount = planned.iter().map(|plan| plan.resident_bytes + plan.streamed_bytes).sum();
    let grown: ByteCount = planned.iter().map(|plan| plan.resident_bytes).sum();
    grown.saturating_sub(residents) > rings.max(ByteCount(weights.0 / 50))
}

fn names(components: &[Arc<Component>]) -> Vec<String> {
    components.iter().map(|component| component.name().to_owned()).collect()
}
