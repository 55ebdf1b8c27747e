//! First host addresses of a device's mappings, in order.

#![forbid(unsafe_code)]

use crate::sync::{Counter, Ordering};

/// As many addresses are searched one by one.
const YOUNG: usize = 8;
/// As many addresses are moved for one that comes between them.
const CHUNK: usize = 512;

/// A set of addresses, made for what tables of mappings are used for.
///
/// A mapping that soon goes again costs next to nothing: most regions map their data anew each time. And a search among
/// many that stay meets few cache lines: two binary searches in vectors, where a tree has a node at each of its levels.
#[derive(Debug, Default)]
pub struct Ordered {
    /// Some of the newest addresses, in order.
    young: Vec<usize>,
    /// The first address of each chunk.
    firsts: Vec<usize>,
    /// All other addresses, in order. No chunk is empty.
    chunks: Vec<Vec<usize>>,
    /// Where a search in the chunks has ended: mappings that come and go do so at few places. One number, as several threads
    /// may search at a time: of the chunk in the upper half, and of the address behind the one that was found in the lower. It
    /// is where to look first, whatever has changed since.
    gap: Counter,
}

impl Ordered {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.young.is_empty() && self.chunks.is_empty()
    }

    /// Adds an address that is not there.
    pub fn insert(&mut self, address: usize) {
        if self.young.len() == YOUNG {
            for index in 0..YOUNG / 2 {
                self.insert_old(self.young[index]);
            }
            self.young.drain(..YOUNG / 2);
        }
        let index = self.young.iter().rposition(|young| *young < address).map_or(0, |before| before + 1);
        self.young.insert(index, address);
    }

    fn insert_old(&mut self, address: usize) {
        let Some((at, chunk)) = self.chunk_of(address) else {
            self.chunks.push(vec![address]);
            self.firsts.push(address);
            return;
        };
        let index = chunk.partition_point(|old| *old < address);
        let chunk = &mut self.chunks[at];
        chunk.insert(index, address);
        self.firsts[at] = chunk[0];
        if chunk.len() == CHUNK {
            // Addresses that only grow leave full chunks behind them.
            let keeps = if index == CHUNK - 1 { CHUNK - 1 } else { CHUNK / 2 };
            let rest = chunk.split_off(keeps);
            self.firsts.insert(at + 1, rest[0]);
            self.chunks.insert(at + 1, rest);
        }
    }

    /// All addresses.
    pub fn into_sorted(self) -> Vec<usize> {
        let mut all = self.young;
        all.extend(self.chunks.into_iter().flatten());
        all.sort_unstable();
        all
    }

    /// The chunk where an address is or would be, and its number.
    fn chunk_of(&self, address: usize) -> Option<(usize, &Vec<usize>)> {
        let at = self.firsts.partition_point(|first| *first <= address).saturating_sub(1);
        self.chunks.get(at).map(|chunk| (at, chunk))
    }

    /// Removes an address.
    pub fn remove(&mut self, address: usize) {
        match self.young.iter().rposition(|young| *young == address) {
            Some(last) if last + 1 == self.young.len() => _ = self.young.pop(),
            Some(index) => _ = self.young.remove(index),
            None => self.remove_old(address),
        }
    }

    fn remove_old(&mut self, address: usize) {
        let Some((at, chunk)) = self.chunk_of(address) else { return };
        let Ok(index) = chunk.binary_search(&address) else { return };
        self.chunks[at].remove(index);
        let len = self.chunks[at].len();
        if len == 0 {
            self.chunks.remove(at);
            self.firsts.remove(at);
            return;
        }
        if self.chunks.get(at + 1).is_some_and(|next| len + next.len() <= CHUNK / 4) {
            let next = self.chunks.remove(at + 1);
            self.firsts.remove(at + 1);
            self.chunks[at].extend(next);
        }
        self.firsts[at] = self.chunks[at][0];
    }

    /// The greatest address up to `limit`.
    #[inline]
    pub fn last_up_to(&self, limit: usize) -> Option<usize> {
        let young = self.young.iter().rev().copied().find(|young| *young <= limit);
        let old = self.in_gap(limit).or_else(|| self.last_old_up_to(limit));
        young.max(old)
    }

    /// The same of the addresses in chunks, if it is what the last search has found, too.
    #[inline]
    fn in_gap(&self, limit: usize) -> Option<usize> {
        let gap = self.gap.load(Ordering::Relaxed);
        let (at, after) = ((gap >> 32) as usize, gap as u32 as usize);
        let chunk = self.chunks.get(at)?;
        let address = *chunk.get(after.wrapping_sub(1))?;
        let next = chunk.get(after).or_else(|| self.firsts.get(at + 1));
        (address <= limit && next.is_none_or(|next| limit < *next)).then_some(address)
    }

    fn last_old_up_to(&self, limit: usize) -> Option<usize> {
        let (at, chunk) = self.chunk_of(limit)?;
        let after = chunk.partition_point(|address| *address <= limit);
        let address = *chunk[..after].last()?;
        self.gap.store((at as u64) << 32 | after as u64, Ordering::Relaxed);
        Some(address)
    }

    /// The least address above `limit`.
    pub fn first_above(&self, limit: usize) -> Option<usize> {
        self.first_between(limit, usize::MAX, |_| true)
    }

    /// The least address above `low` and up to `high` which is as asked.
    pub fn first_between(&self, low: usize, high: usize, is: impl Fn(usize) -> bool) -> Option<usize> {
        if low >= high {
            return None;
        }
        let inside = |address: &usize| low < *address && *address <= high && is(*address);
        let young = self.young.iter().copied().find(inside);
        let old = self.chunk_of(low).and_then(|(at, chunk)| {
            let after = chunk.partition_point(|address| *address <= low);
            let later = chunk[after..].iter().chain(self.chunks[at + 1..].iter().flatten());
            later.copied().take_while(|address| *address <= high).find(|address| is(*address))
        });
        match (young, old) {
            (Some(young), Some(old)) => Some(young.min(old)),
            (young, old) => young.or(old),
        }
    }

    /// The least address of all.
    pub fn first(&self) -> Option<usize> {
        self.young.first().into_iter().chain(self.firsts.first()).min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::ops::Bound::{Excluded, Included};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn it_is_a_sorted_set_at_every_size(
            steps in prop::collection::vec((0..100_000usize, 0..3u8), 3000..6000),
            grows in any::<bool>(),
        ) {
            let (mut ordered, mut plain) = (Ordered::default(), BTreeSet::new());
            for (n, (address, what)) in steps.iter().enumerate() {
                // Grows, stays, and shrinks to nothing.
                let nearest = plain.range(..=*address).next_back().copied();
                match nearest {
                    Some(nearest) if n > 4000 && *what > 0 || *what == 0 && n > 2000 => {
                        plain.remove(&nearest);
                        ordered.remove(nearest);
                    }
                    _ => {
                        let address = if grows { n } else { *address };
                        if plain.insert(address) {
                            ordered.insert(address);
                        }
                    }
                }
                prop_assert_eq!(ordered.last_up_to(*address), plain.range(..=*address).next_back().copied());
            }
            let mut all = Vec::new();
            let mut next = ordered.first();
            while let Some(address) = next {
                all.push(address);
                next = ordered.first_above(address);
            }
            prop_assert_eq!(all, plain.into_iter().collect::<Vec<_>>());
            prop_assert!(ordered.chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() < CHUNK));
        }

        #[test]
        fn it_is_a_sorted_set(steps in prop::collection::vec((0..60usize, any::<bool>()), 0..200)) {
            let (mut ordered, mut plain) = (Ordered::default(), BTreeSet::new());
            for (address, remove) in steps {
                if remove && plain.remove(&address) {
                    ordered.remove(address);
                } else if plain.insert(address) {
                    ordered.insert(address);
                }
                prop_assert_eq!(ordered.is_empty(), plain.is_empty());
                prop_assert_eq!(ordered.first(), plain.first().copied());
                for limit in [0, address, 30, usize::MAX] {
                    prop_assert_eq!(ordered.last_up_to(limit), plain.range(..=limit).next_back().copied());
                    let above = plain.range((Excluded(limit), Included(usize::MAX))).next().copied();
                    prop_assert_eq!(ordered.first_above(limit), above.filter(|_| limit < usize::MAX));
                    let odd = plain.iter().copied().find(|found| *found > limit && *found <= 50 && found % 2 == 1);
                    prop_assert_eq!(ordered.first_between(limit, 50, |found| found % 2 == 1), odd);
                }
            }
        }
    }
}
