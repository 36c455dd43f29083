//! Who touched which bytes last: the check that every access is ordered.
//!
//! For each piece of memory this remembers its last write and what the next write must wait for: the reads since, and,
//! for memory with a new owner, all accesses of former owners and the allocation itself. An access is remembered as its
//! queue and its number there, which is all that a vector clock needs to tell whether it happened before.
//!
//! Pieces are split where accesses begin and end, and joined again by the next write over them, so there are never many
//! more of them than live buffers.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::Content;
use crate::clock::VectorClock;
use crate::violation::ViolationKind;

/// An operation, as told in a violation.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) name: Arc<str>,
    pub(crate) queue: Arc<str>,
    pub(crate) start: Duration,
    pub(crate) end: Duration,
}

/// What an operation did to a piece of memory.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) queue: usize,
    pub(crate) tick: u64,
    pub(crate) kind: AccessKind,
    /// Whether the memory belonged to somebody else then.
    pub(crate) former_owner: bool,
    pub(crate) operation: Arc<Operation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessKind {
    Read,
    Write,
    Allocate,
}

/// A broken rule, on a piece of memory.
pub(crate) struct Conflict<'a> {
    pub(crate) kind: ViolationKind,
    pub(crate) addresses: Range<u64>,
    pub(crate) other: Option<&'a Access>,
}

/// The history of a device's memory.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// By first address. Memory never allocated is absent.
    pieces: BTreeMap<u64, Piece>,
}

#[derive(Clone, Debug)]
struct Piece {
    end: u64,
    /// None when the present owner has not written it: poison.
    written: Option<Access>,
    /// What the next write must wait for, beside the last write; at most one access a queue, its last.
    before: Vec<Access>,
    content: Option<Arc<Content>>,
}

impl Piece {
    fn remember(&mut self, access: Access) {
        match self.before.iter_mut().find(|before| before.queue == access.queue) {
            Some(before) if before.tick <= access.tick => *before = access,
            Some(_) => {}
            None => self.before.push(access),
        }
    }

    /// What was here belongs to a former owner.
    fn poison(&mut self) {
        if let Some(written) = self.written.take() {
            self.remember(written);
        }
        self.content = None;
        self.before.iter_mut().for_each(|before| before.former_owner = true);
    }
}

impl History {
    /// Memory gets an owner, from the point `allocation` on. Nothing is written yet.
    pub(crate) fn allocate(&mut self, addresses: Range<u64>, allocation: &Access) {
        self.fill_gaps(&addresses);
        for (_, piece) in self.pieces_within(addresses) {
            piece.poison();
            piece.remember(allocation.clone());
        }
    }

    /// Memory gets another owner, who orders it behind the former one by himself.
    pub(crate) fn hand_over(&mut self, addresses: Range<u64>) {
        self.pieces_within(addresses).for_each(|(_, piece)| piece.poison());
    }

    /// `access` reads memory, behind everything that `clock` counts. What it sees is appended to `seen`.
    pub(crate) fn read(
        &mut self,
        addresses: Range<u64>,
        access: &Access,
        clock: &VectorClock,
        seen: &mut Vec<Arc<Content>>,
        found: &mut dyn FnMut(Conflict<'_>),
    ) {
        for (&start, piece) in self.pieces_within(addresses) {
            let addresses = start..piece.end;
            match &piece.written {
                None => found(Conflict { kind: ViolationKind::ReadOfPoison, addresses, other: None }),
                Some(written) if clock.get(written.queue) < written.tick => {
                    found(Conflict { kind: ViolationKind::ReadUnordered, addresses, other: Some(written) });
                }
                Some(_) => {}
            }
            if let Some(content) = &piece.content
                && !seen.last().is_some_and(|last| Arc::ptr_eq(last, content))
            {
                seen.push(content.clone());
            }
            piece.remember(access.clone());
        }
    }

    /// `access` writes memory, behind everything that `clock` counts.
    pub(crate) fn write(
        &mut self,
        addresses: Range<u64>,
        access: &Access,
        clock: &VectorClock,
        content: Option<&Arc<Content>>,
        found: &mut dyn FnMut(Conflict<'_>),
    ) {
        if addresses.is_empty() {
            return;
        }
        for (&start, piece) in self.pieces_within(addresses.clone()) {
            for other in piece.before.iter().chain(&piece.written).filter(|other| clock.get(other.queue) < other.tick) {
                let kind = match other.kind {
                    AccessKind::Read => ViolationKind::WriteUnorderedAfterRead,
                    AccessKind::Write => ViolationKind::WriteUnorderedAfterWrite,
                    AccessKind::Allocate => ViolationKind::WriteBeforeAllocation,
                };
                found(Conflict { kind, addresses: start..piece.end, other: Some(other) });
            }
        }
        while let Some((&start, _)) = self.pieces.range(addresses.clone()).next() {
            self.pieces.remove(&start);
        }
        let written = Some(access.clone());
        let piece = Piece { end: addresses.end, written, before: Vec::new(), content: content.cloned() };
        self.pieces.insert(addresses.start, piece);
    }

    /// What memory holds.
    pub(crate) fn contents(&self, addresses: Range<u64>, seen: &mut Vec<Arc<Content>>) {
        let first = self.pieces.range(..=addresses.start).next_back().map_or(addresses.start, |(&start, _)| start);
        for piece in self.pieces.range(first..addresses.end).map(|(_, piece)| piece) {
            if let Some(content) = piece.content.as_ref().filter(|_| piece.end > addresses.start)
                && !seen.last().is_some_and(|last| Arc::ptr_eq(last, content))
            {
                seen.push(content.clone());
            }
        }
    }

    /// The pieces of exactly these addresses, split at both ends where they reach beyond.
    fn pieces_within(&mut self, addresses: Range<u64>) -> impl Iterator<Item = (&u64, &mut Piece)> {
        self.split_at(addresses.start);
        self.split_at(addresses.end);
        self.pieces.range_mut(addresses.start..addresses.end.max(addresses.start))
    }

    fn split_at(&mut self, address: u64) {
        if let Some((_, piece)) = self.pieces.range_mut(..address).next_back()
            && piece.end > address
        {
            let rest = piece.clone();
            piece.end = address;
            self.pieces.insert(address, rest);
        }
    }

    fn fill_gaps(&mut self, addresses: &Range<u64>) {
        let mut gaps = Vec::new();
        let mut start = addresses.start;
        for (&next, piece) in self.pieces_within(addresses.clone()) {
            if start < next {
                gaps.push(start..next);
            }
            start = piece.end;
        }
        if start < addresses.end {
            gaps.push(start..addresses.end);
        }
        for gap in gaps {
            let piece = Piece { end: gap.end, written: None, before: Vec::new(), content: None };
            self.pieces.insert(gap.start, piece);
        }
    }
}
