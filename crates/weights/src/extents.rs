//! Decides how the cold extents of a file are read: past the page cache, or through it so that they stay.
//!
//! The rule, extent by extent:
//! - Bytes that are in the page cache are read from it. Nothing is decided and nothing is counted.
//! - Cold bytes are read past the cache the first time. Most weights are read once and then live on the device, and a
//!   whole model's worth of pages would push out what other programs, and other models, need.
//! - Cold bytes that are read *again* are being streamed, so they will be read many times more. If the system has room
//!   for the extent ([`CacheRoom`]), they are read through the cache this time, and are warm from then on: what fits
//!   in memory isn't read from disk a third time. If it has no room, past the cache again: the extents that found room
//!   stay, and the rest doesn't push them out.
//! - An extent that was put into the cache and is found cold again was pushed out by somebody. Its room is given back,
//!   and it has to be read past the cache twice as often as before until it is put there again.
//!
//! "Again" is decided by the bytes of a pass over the extent: a read that begins where this pass has been is the
//! beginning of the next one. So tensors that share an extent may be read in any order, and panel by panel.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::cache_room::CacheRoom;

/// How much of a file is decided about at once, and the most that is read at once. Extents begin at its multiples.
pub(crate) const EXTENT_BYTES: u64 = 4 << 20;

/// Most separate ranges that a pass over an extent is remembered by; more become one.
const RANGE_COUNT_MAX: usize = 32;

/// Most doublings of the wait of an extent that gets pushed out.
const PUSHED_OUT_MAX: u32 = 16;

/// How to read cold bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Past the page cache.
    Direct,
    /// Through the page cache.
    Cached,
}

/// The extents of one file that were ever read cold.
#[derive(Default)]
pub(crate) struct Extents {
    states: Mutex<BTreeMap<u64, Extent>>,
}

#[derive(Default)]
struct Extent {
    /// What this pass has read.
    passed: Vec<Range<u64>>,
    /// Passes past the cache that were followed by another.
    direct_pass_count: u32,
    /// Bytes that are booked for it, if it was put into the cache.
    booked: Option<u64>,
    pushed_out_count: u32,
}

impl Extents {
    /// How to read the cold `range`, which lies in one extent of a file of `file_len` bytes.
    pub(crate) fn route(&self, range: Range<u64>, file_len: u64, room: &CacheRoom) -> Route {
        let idx = range.start / EXTENT_BYTES;
        let extent_len = EXTENT_BYTES.min(file_len.saturating_sub(idx * EXTENT_BYTES));
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let extent = states.entry(idx).or_default();
        if extent.has_passed(range.start) {
            extent.begin_pass(extent_len, room);
        }
        extent.pass(range);
        if extent.booked.is_some() { Route::Cached } else { Route::Direct }
    }

    /// Gives back all that was booked.
    pub(crate) fn give_back(&self, room: &CacheRoom) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.values_mut().filter_map(|extent| extent.booked.take()).for_each(|booked| room.give_back(booked));
    }
}

impl Extent {
    fn has_passed(&self, offset: u64) -> bool {
        self.passed.iter().any(|passed| passed.contains(&offset))
    }

    fn begin_pass(&mut self, extent_len: u64, room: &CacheRoom) {
        self.passed.clear();
        if let Some(booked) = self.booked.take() {
            room.give_back(booked);
            self.pushed_out_count = (self.pushed_out_count + 1).min(PUSHED_OUT_MAX);
            self.direct_pass_count = 0;
            return;
        }
        self.direct_pass_count = self.direct_pass_count.saturating_add(1);
        if self.direct_pass_count >= 1 << self.pushed_out_count && room.book(extent_len) {
            self.booked = Some(extent_len);
        }
    }

    fn pass(&mut self, range: Range<u64>) {
        if let Some(before) = self.passed.iter_mut().find(|passed| passed.end == range.start) {
            before.end = range.end;
            return;
        }
        self.passed.push(range);
        if self.passed.len() > RANGE_COUNT_MAX {
            let start = self.passed.iter().map(|passed| passed.start).min();
            let end = self.passed.iter().map(|passed| passed.end).max();
            self.passed = start.zip(end).map(|(start, end)| start..end).into_iter().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_room::Memory;

    const FILE_LEN: u64 = 3 * EXTENT_BYTES + 5;

    fn room(extent_count: u64) -> CacheRoom {
        let (total, available) = (8 << 30, (1 << 30) + extent_count * EXTENT_BYTES);
        CacheRoom::new(Box::new(move || Some(Memory { total, available })))
    }

    /// How each of `passes` over the first `extent_count` extents is read: `d`irect or `c`ached, by halves of an
    /// extent. All stays cold.
    fn routes(extents: &Extents, room: &CacheRoom, extent_count: u64, passes: usize) -> Vec<String> {
        let halves: Vec<_> = (0..2 * extent_count).map(|half| half * EXTENT_BYTES / 2).collect();
        let letter = |start: &u64| match extents.route(*start..start + EXTENT_BYTES / 2, FILE_LEN, room) {
            Route::Direct => 'd',
            Route::Cached => 'c',
        };
        (0..passes).map(|_| halves.iter().map(letter).collect()).collect()
    }

    #[test]
    fn the_second_pass_goes_through_the_cache_while_there_is_room() {
        assert_eq!(routes(&Extents::default(), &room(2), 3, 2), ["dddddd", "ccccdd"]);
        assert_eq!(routes(&Extents::default(), &room(0), 3, 2), ["dddddd", "dddddd"]);
    }

    #[test]
    fn an_extent_that_is_pushed_out_waits_longer_each_time() {
        let routes = routes(&Extents::default(), &room(1), 1, 14);
        assert_eq!(routes.concat(), ["dd", "cc", "dddd", "cc", "dddddddd", "cc", "dddddddd"].concat());
    }

    #[test]
    fn tensors_of_an_extent_may_come_in_any_order() {
        let (extents, room) = (Extents::default(), room(1));
        let pass = |starts: &[u64]| -> Vec<Route> {
            starts.iter().map(|&start| extents.route(start..start + 10, FILE_LEN, &room)).collect()
        };
        assert_eq!(pass(&[500, 510, 100, 300]), [Route::Direct; 4]);
        assert_eq!(pass(&[100, 500, 510, 300]), [Route::Cached; 4]);
        // Pushed out.
        assert_eq!(pass(&[510, 500]), [Route::Direct; 2]);
    }

    #[test]
    fn a_pass_of_many_pieces_is_remembered_by_few() {
        let (extents, room) = (Extents::default(), room(1));
        for start in (0..1000).rev().map(|idx| idx * 20) {
            extents.route(start..start + 10, FILE_LEN, &room);
        }
        assert!(extents.states.lock().unwrap()[&0].passed.len() <= RANGE_COUNT_MAX);
    }

    #[test]
    fn the_last_extent_books_what_it_has() {
        let (extents, room) = (Extents::default(), room(0));
        let last = 3 * EXTENT_BYTES..FILE_LEN;
        assert_eq!(extents.route(last.clone(), FILE_LEN, &room), Route::Direct);
        assert_eq!(extents.route(last.clone(), FILE_LEN, &room), Route::Direct);
        let five = CacheRoom::new(Box::new(|| Some(Memory { total: 0, available: (1 << 30) + 5 })));
        assert_eq!(extents.route(last, FILE_LEN, &five), Route::Cached);
        assert!(!five.book(1));
        extents.give_back(&five);
        assert!(five.book(5));
    }
}
