//! Streams and events of one device, kept for reuse.

use crate::driver::Result;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::hash::Hash;

/// Things of one kind that cost to make: taken, used, put back, and all given back in the end.
///
/// What was put back last is taken first. When none is left, as many as there are are made anew.
#[derive(Debug)]
pub struct Pool<T> {
    inner: Mutex<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    /// To be taken from the end.
    free: Vec<T>,
    /// All that were made.
    all: Vec<T>,
    known: HashSet<T>,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self { inner: Mutex::new(Inner { free: Vec::new(), all: Vec::new(), known: HashSet::new() }) }
    }
}

impl<T: Copy + Eq + Hash> Pool<T> {
    /// Makes `count` more by `make`; keeps what was made before a failure.
    pub fn fill(&self, count: usize, make: impl FnMut() -> Result<T>) -> Result {
        self.inner.lock().fill(count, make)
    }

    /// Takes one; makes more by `make` if there is none.
    pub fn take(&self, make: impl FnMut() -> Result<T>) -> Result<T> {
        let mut inner = self.inner.lock();
        if let Some(item) = inner.free.pop() {
            return Ok(item);
        }
        let count = inner.all.len().max(1);
        let filled = inner.fill(count, make);
        // One is enough for now, whatever happened to the rest.
        inner.free.pop().ok_or_else(|| filled.expect_err("filling made none"))
    }

    /// Puts one back. False, and nothing happens, if it is not of this pool or is there already.
    pub fn put(&self, item: T) -> bool {
        let mut inner = self.inner.lock();
        let ours = inner.known.contains(&item) && !inner.free.contains(&item);
        if ours {
            inner.free.push(item);
        }
        ours
    }

    /// Whether this pool made `item`.
    pub fn owns(&self, item: T) -> bool {
        self.inner.lock().known.contains(&item)
    }

    /// Empties the pool and answers all that it ever made, whether put back or not.
    pub fn drain(&self) -> Vec<T> {
        let mut inner = self.inner.lock();
        inner.free.clear();
        inner.known.clear();
        std::mem::take(&mut inner.all)
    }
}

impl<T: Copy + Eq + Hash> Inner<T> {
    fn fill(&mut self, count: usize, mut make: impl FnMut() -> Result<T>) -> Result {
        let first = self.free.len();
        let filled = (0..count).try_for_each(|_| {
            let item = make()?;
            self.all.push(item);
            self.known.insert(item);
            self.free.push(item);
            Ok(())
        });
        // The first one made is the first one taken.
        self.free[first..].reverse();
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Failed;

    fn counter(from: &mut u32) -> impl FnMut() -> Result<u32> {
        move || {
            *from += 1;
            Ok(*from)
        }
    }

    #[test]
    fn what_was_put_back_last_is_taken_first() {
        let (pool, mut made) = (Pool::default(), 0);
        pool.fill(3, counter(&mut made)).unwrap();
        let mut take = || pool.take(counter(&mut made)).unwrap();
        assert_eq!((take(), take()), (1, 2));
        assert!(pool.put(1));
        assert_eq!((take(), take()), (1, 3));
    }

    #[test]
    fn an_empty_pool_doubles() {
        let (pool, mut made) = (Pool::default(), 0);
        for expected in 1..=3 {
            assert_eq!(pool.take(counter(&mut made)).unwrap(), expected);
        }
        assert_eq!(made, 4);
    }

    #[test]
    fn a_failure_keeps_what_was_made() {
        let pool = Pool::default();
        pool.fill(2, counter(&mut 0)).unwrap();
        let (mut calls, mut made) = (0, 10);
        let mut sometimes = || {
            calls += 1;
            made += 1;
            if calls == 2 { Err(Failed(2)) } else { Ok(made) }
        };
        pool.take(|| unreachable!()).unwrap();
        pool.take(|| unreachable!()).unwrap();
        assert_eq!(pool.take(&mut sometimes), Ok(11));
        assert_eq!(pool.take(|| Err(Failed(2))), Err(Failed(2)));
        assert_eq!(pool.drain().len(), 3);
    }

    #[test]
    fn strangers_and_twins_are_refused() {
        let pool = Pool::default();
        pool.fill(1, counter(&mut 0)).unwrap();
        assert!(!pool.put(1), "it is there");
        assert!(!pool.put(7), "not of this pool");
        assert_eq!(pool.drain(), [1]);
    }
}
