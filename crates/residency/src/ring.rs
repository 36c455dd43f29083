//! The ring of bytes that streamed units pass through.
//!
//! Units lie one behind the other in one region, in the order in which their copies were started, and around again from
//! its start. What always holds:
//! - A range is busy while a copy fills it or a lease reads it, and busy ranges don't overlap.
//! - A range that was given back remembers the events of its last readers; a copy that takes any of its bytes waits for
//!   them, on the copy queue. The host waits for nothing.
//! - However it ends, its region is freed behind everything that was done with its bytes.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_device::{Buffer, ByteCount, DeviceError, Event, Filling, Queue, Region, Upload};

use crate::{Lookahead, Unit, UnitId};

/// How many units beyond those being copied are announced to their storage.
const ANNOUNCED_MAX: usize = 2;

/// The ring's state: which bytes are busy, what is being copied, and what comes after what.
pub(crate) struct Ring {
    region: Arc<dyn Region>,
    /// The queue in whose order the region is freed.
    home: Arc<dyn Queue>,
    lookahead: Lookahead,
    /// Where the next copy goes, if it fits there.
    cursor: u64,
    spans: Vec<Span>,
    in_flight: VecDeque<InFlight>,
    /// For each unit, the streamed unit that was visited after it the last time.
    successors: Vec<Option<UnitId>>,
    last_visited: Option<UnitId>,
    /// Units whose storage knows that they will be read.
    announced: VecDeque<UnitId>,
    /// The copy queue handed out last.
    queue_idx: usize,
}

/// A range with a history.
struct Span {
    range: Range<u64>,
    /// None while it is busy; then the events after which its bytes may be written again.
    consumed: Option<Vec<Arc<dyn Event>>>,
}

/// Bytes for a copy, and the events that it waits for.
type Place = (Range<u64>, Vec<Arc<dyn Event>>);

/// A copy that nobody has asked for yet.
struct InFlight {
    unit: UnitId,
    filling: Filling,
    range: Range<u64>,
}

/// A unit's weights in the ring.
pub(crate) struct Slot {
    pub(crate) buffer: Buffer,
    pub(crate) range: Range<u64>,
}

/// What the ring works with, besides its own state.
pub(crate) struct RingQueues<'a> {
    pub(crate) compute: &'a dyn Queue,
    /// Side queues; when there are none, copies run on the compute queue.
    pub(crate) copies: &'a [Arc<dyn Queue>],
    pub(crate) units: &'a [Unit],
}

/// No slot could be had.
pub(crate) enum RingError {
    /// All bytes that would do are leased.
    Leased,
    /// The copy failed.
    Device(DeviceError),
}

impl From<DeviceError> for RingError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl Ring {
    /// A ring for the streamed units, which are expected to be visited in that order, again and again.
    ///
    /// `home` is the queue the region was allocated for; the copies' queues are ordered behind that here.
    pub(crate) fn new(
        region: Arc<dyn Region>,
        home: &Arc<dyn Queue>,
        lookahead: Lookahead,
        unit_count: usize,
        streamed: &[UnitId],
        copies: &[Arc<dyn Queue>],
    ) -> Result<Self, DeviceError> {
        let allocated = home.record();
        for copies in copies {
            copies.wait(&allocated)?;
        }
        Ok(Self {
            region,
            home: home.clone(),
            lookahead,
            cursor: 0,
            spans: Vec::new(),
            in_flight: VecDeque::new(),
            successors: cycle(unit_count, streamed),
            last_visited: None,
            announced: VecDeque::new(),
            queue_idx: 0,
        })
    }

    /// Has these units streamed from now on, expected in that order; copies under way are given up.
    pub(crate) fn expect(&mut self, streamed: &[UnitId]) {
        self.cancel();
        self.successors = cycle(self.successors.len(), streamed);
        self.last_visited = None;
    }

    /// The weights of `unit`, for work on the compute queue from now on. Afterwards, copies of the units expected next
    /// are started.
    pub(crate) fn acquire(&mut self, unit: UnitId, queues: &RingQueues<'_>) -> Result<Slot, RingError> {
        let asked = queues.compute.record();
        let flight = match self.in_flight.iter().position(|flight| flight.unit == unit) {
            Some(position) => self.in_flight.remove(position).expect("the position was just found"),
            None => self.copy_now(unit, &asked, queues)?,
        };
        self.note_visit(unit);
        let range = flight.range;
        let ready = flight.filling.ready().clone();
        let acquired = flight.filling.acquire(queues.compute);
        let buffer = acquired.inspect_err(|_| self.give_back(&range, vec![ready]))?;
        if !queues.copies.is_empty() {
            // A copy that can't be started now is started, and its failure told, when its unit is asked for.
            let _ = self.prefetch(unit, &asked, queues);
        }
        self.announce(unit, queues);
        Ok(Slot { buffer, range })
    }

    /// Takes bytes back whose readers' work ends at `consumed`.
    pub(crate) fn release(&mut self, slot: Slot, consumed: Vec<Arc<dyn Event>>) {
        drop(slot.buffer);
        self.give_back(&slot.range, consumed);
    }

    /// Its bytes.
    pub(crate) fn size(&self) -> ByteCount {
        self.region.size()
    }

    /// Whether a lease reads some of its bytes.
    pub(crate) fn is_leased(&self) -> bool {
        self.spans.iter().filter(|span| span.consumed.is_none()).count() > self.in_flight.len()
    }

    /// Gives up the copies that nobody has asked for.
    fn cancel(&mut self) {
        let home = self.home.clone();
        while let Some(flight) = self.in_flight.pop_back() {
            self.cancel_flight(flight, &*home);
        }
    }

    fn cancel_flight(&mut self, flight: InFlight, compute: &dyn Queue) {
        let ready = flight.filling.ready().clone();
        // A copy that failed is of no interest to anybody, for nobody asked for it.
        drop(flight.filling.acquire(compute));
        self.give_back(&flight.range, vec![ready]);
    }

    fn give_back(&mut self, range: &Range<u64>, consumed: Vec<Arc<dyn Event>>) {
        let span = self.spans.iter_mut().find(|span| span.consumed.is_none() && span.range == *range);
        span.expect("only busy bytes are given back").consumed = Some(consumed);
    }

    fn note_visit(&mut self, unit: UnitId) {
        self.announced.retain(|announced| *announced != unit);
        if let Some(last) = self.last_visited.replace(unit) {
            self.successors[last.0] = Some(unit);
        }
    }

    /// Starts the copies of the units expected after `after`, as far ahead as there is room and the policy says.
    fn prefetch(&mut self, after: UnitId, asked: &Arc<dyn Event>, queues: &RingQueues<'_>) -> Result<(), DeviceError> {
        let most = match self.lookahead {
            Lookahead::Ring => usize::MAX,
            Lookahead::Streams(streams) => streams.saturating_sub(1),
        };
        let mut expected = after;
        for _ in 0..most.min(self.successors.len()) {
            let Some(next) = self.successors[expected.0].filter(|&next| next != after) else { return Ok(()) };
            expected = next;
            if self.in_flight.iter().any(|flight| flight.unit == expected) {
                continue;
            }
            let Unit { upload, bytes, .. } = &queues.units[expected.0];
            let Some((range, consumed)) = self.place_next(*bytes) else { return Ok(()) };
            let flight = self.start_copy(expected, upload, range, consumed, asked, queues)?;
            self.in_flight.push_back(flight);
        }
        Ok(())
    }

    /// Tells the storage of the units behind those being copied that they will be read.
    fn announce(&mut self, after: UnitId, queues: &RingQueues<'_>) {
        let mut expected = after;
        for _ in 0..self.in_flight.len() + ANNOUNCED_MAX {
            let Some(next) = self.successors[expected.0].filter(|&next| next != after) else { return };
            expected = next;
            let is_known = self.announced.contains(&expected);
            if is_known || self.in_flight.iter().any(|flight| flight.unit == expected) {
                continue;
            }
            let upload = &queues.units[expected.0].upload;
            upload.pieces.iter().for_each(|piece| piece.source.read_ahead());
            self.announced.push_back(expected);
        }
    }

    /// Copies a unit that nobody expected, where there is room, or room can be made of copies not asked for.
    fn copy_now(
        &mut self,
        unit: UnitId,
        asked: &Arc<dyn Event>,
        queues: &RingQueues<'_>,
    ) -> Result<InFlight, RingError> {
        let Unit { upload, bytes, .. } = &queues.units[unit.0];
        loop {
            if let Some((range, consumed)) = self.place_anywhere(*bytes) {
                return Ok(self.start_copy(unit, upload, range, consumed, asked, queues)?);
            }
            let flight = self.in_flight.pop_back().ok_or(RingError::Leased)?;
            self.cancel_flight(flight, queues.compute);
        }
    }

    fn start_copy(
        &mut self,
        unit: UnitId,
        upload: &Arc<Upload>,
        range: Range<u64>,
        consumed: Vec<Arc<dyn Event>>,
        asked: &Arc<dyn Event>,
        queues: &RingQueues<'_>,
    ) -> Result<InFlight, DeviceError> {
        let copies = self.next_queue(asked, queues)?;
        let buffer = self.region.clone().take(range.clone()).expect("bytes that are not busy can be taken");
        for event in &consumed {
            // What failed before the event was told to those who asked for it; the order is all that matters here.
            let _ = copies.wait(event);
        }
        self.spans.push(Span { range: range.clone(), consumed: None });
        let filling = copies.upload(upload, buffer);
        Ok(InFlight { unit, filling, range })
    }

    /// The queue for the next copy. They take turns. Where their number limits how far copies run ahead, the oldest is
    /// synchronized before it is handed out: it waits for what had been enqueued to compute when this copy was started.
    fn next_queue<'a>(
        &mut self,
        asked: &Arc<dyn Event>,
        queues: &RingQueues<'a>,
    ) -> Result<&'a dyn Queue, DeviceError> {
        if queues.copies.is_empty() {
            return Ok(queues.compute);
        }
        self.queue_idx = (self.queue_idx + 1) % queues.copies.len();
        let oldest = &*queues.copies[self.queue_idx];
        if matches!(self.lookahead, Lookahead::Streams(_)) {
            oldest.wait(asked)?;
        }
        Ok(oldest)
    }

    /// Bytes behind the last copy, or at the start if those are too few.
    fn place_next(&mut self, size: ByteCount) -> Option<Place> {
        let fits_behind = size.0 <= self.region.size().0 - self.cursor;
        let start = if fits_behind { self.cursor } else { 0 };
        self.place_at(start, size)
    }

    /// Bytes behind the last copy, at the start, or behind whatever is busy.
    fn place_anywhere(&mut self, size: ByteCount) -> Option<Place> {
        let busy = self.spans.iter().filter(|span| span.consumed.is_none());
        let mut starts: Vec<u64> = busy.map(|span| span.range.end).collect();
        starts.sort_unstable();
        [self.cursor, 0].into_iter().chain(starts).find_map(|start| self.place_at(start, size))
    }

    /// The bytes from `start` on, unless some are busy, with the events that their next copy waits for.
    fn place_at(&mut self, start: u64, size: ByteCount) -> Option<Place> {
        let end = start.checked_add(size.0).filter(|&end| end <= self.region.size().0)?;
        let overlaps = |range: &Range<u64>| range.start < end && start < range.end;
        if self.spans.iter().any(|span| span.consumed.is_none() && overlaps(&span.range)) {
            return None;
        }
        let mut waits: Vec<Arc<dyn Event>> = Vec::new();
        let mut kept = Vec::with_capacity(self.spans.len() + 2);
        for span in std::mem::take(&mut self.spans) {
            let Some(consumed) = span.consumed.as_ref().filter(|_| overlaps(&span.range)) else {
                kept.push(span);
                continue;
            };
            for event in consumed {
                if !waits.iter().any(|known| Arc::ptr_eq(known, event)) {
                    waits.push(event.clone());
                }
            }
            for rest in [span.range.start..start, end..span.range.end] {
                if rest.start < rest.end {
                    kept.push(Span { range: rest, consumed: span.consumed.clone() });
                }
            }
        }
        self.spans = kept;
        self.cursor = end;
        Some((start..end, waits))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.cancel();
        for event in self.spans.iter().flat_map(|span| span.consumed.iter().flatten()) {
            // What failed before the event was told to those who asked for it; the order is all that matters here.
            let _ = self.home.wait(event);
        }
    }
}

/// For each streamed unit the one that comes after it; after the last comes the first.
fn cycle(unit_count: usize, streamed: &[UnitId]) -> Vec<Option<UnitId>> {
    let mut successors = vec![None; unit_count];
    for (position, unit) in streamed.iter().enumerate() {
        successors[unit.0] = Some(streamed[(position + 1) % streamed.len()]);
    }
    successors
}
