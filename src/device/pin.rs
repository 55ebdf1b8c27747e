//! Handles on mapping entries, and what the last of them gives back.

use super::Plugin;
use crate::mapping::{Entry, Event, Origin};
use crate::report::{Address, report};
use crate::sync::Arc;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

/// A counted handle on an entry, for one use. The entry's memory and event live as long as any handle.
#[derive(Debug)]
pub struct Pin<'d> {
    entry: ManuallyDrop<Arc<Entry>>,
    plugin: &'d Plugin,
}

impl<'d> Pin<'d> {
    /// Guards `entry`, a handle of its own.
    pub const fn new(entry: Arc<Entry>, plugin: &'d Plugin) -> Self {
        Self { entry: ManuallyDrop::new(entry), plugin }
    }

    /// The handle as a pointer, for C++.
    pub fn into_raw(mut self) -> *const Entry {
        // SAFETY: taken once: `self` is forgotten right below.
        let entry = unsafe { ManuallyDrop::take(&mut self.entry) };
        std::mem::forget(self);
        Arc::into_raw(entry)
    }
}

impl Deref for Pin<'_> {
    type Target = Arc<Entry>;
    fn deref(&self) -> &Arc<Entry> {
        &self.entry
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        // SAFETY: taken once, here, as `into_raw` forgets the guard.
        let_go(self.plugin, unsafe { ManuallyDrop::take(&mut self.entry) });
    }
}

/// What a look-up gives: a handle on an entry.
#[derive(Debug)]
pub enum Handle<'d> {
    /// Counted: the entry lives as long as the handle.
    Counted(Pin<'d>),
    /// Of an entry that the thread's call uses, which lives until that has been synchronised.
    OfCall(NonNull<Entry>),
}

impl Handle<'_> {
    pub(super) fn of_call(entry: &Arc<Entry>) -> Self {
        Self::OfCall(NonNull::from(&**entry))
    }
}

impl Deref for Handle<'_> {
    type Target = Entry;
    fn deref(&self) -> &Entry {
        match self {
            Self::Counted(entry) => entry,
            // SAFETY: the call's record, which has a handle, is this thread's, as this one is.
            Self::OfCall(entry) => unsafe { entry.as_ref() },
        }
    }
}

/// Drops a handle; the last one gives the entry's memory and event back.
///
/// The table holds a handle on all that is mapped, so that the last one goes after the removal only. No lock may be
/// held.
#[inline(always)]
pub fn let_go(plugin: &Plugin, entry: Arc<Entry>) {
    if let Some(entry) = Arc::into_inner(entry) {
        free_with_event(plugin, entry);
    }
}

#[cold]
fn free_with_event(plugin: &Plugin, mut entry: Entry) {
    if let Some(event) = free(plugin, &mut entry) {
        destroy(plugin, event);
    }
}

/// As [`let_go`], but leaves the event to the caller, and the memory of the entry if that is at hand.
pub fn free_if_last(plugin: &Plugin, mut entry: Arc<Entry>) -> (Option<Event>, Option<Arc<Entry>>) {
    match Arc::get_mut(&mut entry) {
        Some(only) => (free(plugin, only), Some(entry)),
        None => (Arc::into_inner(entry).and_then(|mut entry| free(plugin, &mut entry)), None),
    }
}

fn free(plugin: &Plugin, entry: &mut Entry) -> Option<Event> {
    if entry.origin() == Origin::Mapped {
        // A failure has been reported, and LLVM goes on after one.
        // SAFETY: the entry owned this memory, and this was the last handle on it.
        let _ = unsafe { plugin.data_delete(entry.target_begin() as *mut _) };
    }
    entry.clear()
}

/// Gives an event back; false, with LLVM's line, if the plugin refuses it.
pub fn destroy(plugin: &Plugin, event: Event) -> bool {
    // SAFETY: the event came from this plugin, and went with the last handle on its entry.
    let done = unsafe { plugin.destroy_event(event) };
    if done.is_err() {
        report!("Failed to destroy event {}", Address(event.address()));
    }
    done.is_ok()
}
