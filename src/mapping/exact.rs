//! A device's mappings by their first host address.

#![forbid(unsafe_code)]

use super::entry::Entry;
use crate::sync::Arc;

/// An entry at its first host address, which is 0 where there is none.
type Slot = (usize, Option<Arc<Entry>>);

/// A hash table in which one step from memory leads to the entry: the addresses lie beside the handles, in the order of
/// their hashes. At a million mappings each such step is what a look-up costs.
#[derive(Debug)]
pub struct Exact {
    /// As many as a power of two, at least a quarter of them empty.
    slots: Vec<Slot>,
    len: usize,
}

impl Default for Exact {
    fn default() -> Self {
        Self { slots: vec![(0, None); 16], len: 0 }
    }
}

impl Exact {
    /// Where an address would best be. Many addresses differ in few bits only.
    #[inline(always)]
    fn home(&self, begin: usize) -> usize {
        let product = (begin as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        ((product >> 64) as usize ^ product as usize) & self.mask()
    }

    #[inline(always)]
    const fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    #[inline(always)]
    fn after(&self, at: usize) -> usize {
        (at + 1) & self.mask()
    }

    /// Where the entry is that begins at `begin`.
    #[inline(always)]
    pub fn find(&self, begin: usize) -> Option<At> {
        let mut at = self.home(begin);
        loop {
            match &self.slots[at] {
                (_, None) => return None,
                (found, _) if *found == begin => return Some(At(at)),
                _ => at = self.after(at),
            }
        }
    }

    /// The entry that has been found.
    #[inline(always)]
    pub fn at(&self, At(at): &At) -> &Arc<Entry> {
        self.slots[*at].1.as_ref().expect("nothing has changed since it was found")
    }

    /// The entry that begins at `begin`.
    #[inline(always)]
    pub fn get(&self, begin: usize) -> Option<&Arc<Entry>> {
        self.find(begin).map(|at| self.at(&at))
    }

    /// Adds an entry. None begins where it does.
    #[inline]
    pub fn insert(&mut self, entry: Arc<Entry>) {
        self.len += 1;
        if self.len > self.slots.len() / 4 * 3 {
            self.grow();
        }
        self.put((entry.host_begin(), Some(entry)));
    }

    #[inline(always)]
    fn put(&mut self, slot: Slot) {
        let mut at = self.home(slot.0);
        while self.slots[at].1.is_some() {
            at = self.after(at);
        }
        self.slots[at] = slot;
    }

    #[cold]
    fn grow(&mut self) {
        let more = vec![(0, None); 2 * self.slots.len()];
        let slots = std::mem::replace(&mut self.slots, more);
        slots.into_iter().filter(|(_, entry)| entry.is_some()).for_each(|slot| self.put(slot));
    }

    /// Takes out the entry that has been found.
    #[inline]
    pub fn remove(&mut self, At(mut hole): At) -> Arc<Entry> {
        self.len -= 1;
        let (_, entry) = std::mem::take(&mut self.slots[hole]);
        // Those behind it move up, unless that would be ahead of their home.
        let mut at = self.after(hole);
        while self.slots[at].1.is_some() {
            let way = |from: usize| at.wrapping_sub(from) & self.mask();
            if way(self.home(self.slots[at].0)) >= way(hole) {
                self.slots.swap(hole, at);
                hole = at;
            }
            at = self.after(at);
        }
        entry.expect("nothing has changed since it was found")
    }
}

/// Where an entry is, until anything changes.
#[derive(Debug)]
pub struct At(usize);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_is_a_map(
            steps in prop::collection::vec((0..600usize, 0..3u8), 0..2000),
            scale in prop::sample::select(vec![1usize, 64, 4096, 1 << 30, 1 << 50]),
        ) {
            let (mut exact, mut plain) = (Exact::default(), BTreeMap::new());
            for (n, (number, what)) in steps.into_iter().enumerate() {
                // Grows, then shrinks.
                let begin = number.wrapping_mul(scale);
                let shrinks = n > 1000;
                match exact.find(begin) {
                    Some(at) if shrinks || what == 0 => {
                        let removed = exact.remove(at);
                        prop_assert!(Arc::ptr_eq(&removed, &plain.remove(&begin).expect("there")));
                    }
                    None if !shrinks || what == 0 => {
                        let new = Arc::new(Entry::of_eight_bytes(begin));
                        exact.insert(Arc::clone(&new));
                        prop_assert!(plain.insert(begin, new).is_none());
                    }
                    found => prop_assert_eq!(found.is_some(), plain.contains_key(&begin)),
                }
                prop_assert_eq!(exact.len, plain.len());
            }
            for number in 0..600 {
                let begin = number * scale;
                let [found, expected] = [exact.get(begin), plain.get(&begin)].map(|entry| entry.map(Arc::as_ptr));
                prop_assert_eq!(found, expected);
            }
            prop_assert!(exact.len <= exact.slots.len() / 4 * 3);
        }
    }
}
