//! The event API as the core sees it: one event an entry, kept, recorded after each copy to the device, waited for on
//! the queue of whoever uses the copy. The host never waits for the device here, but for copies from the device that
//! must come after the work of a call whose queue is just being given back.
//!
//! Without events (`LIBOMPTARGET_MAP_FORCE_ATOMIC=false`, or a plugin that has none) everything succeeds at once.

use crate::device::{CallRecord, destroy};
use crate::mapping::{Busy, CallId, Calls, Event, Queue, Transfer};
use crate::plugin_api::{Done, Failed, Plugin};
use crate::report::{Address, report};
use crate::rules::{Rule, broken};
use crate::sync::Guard;
use omptarget_abi::AsyncInfo;
use std::ffi::c_void;

/// Makes the call's later work come after the newest copy into an entry, whose lock is held.
///
/// Nothing is to be done for a copy that the call issued itself, as its queue is in order, nor for one that is done.
pub fn order_after_copy(plugin: &Plugin, transfer: &Transfer, record: &mut CallRecord) -> Done {
    if broken(Rule::WaitBeforeUse) {
        return Ok(());
    }
    wait_for_copy(plugin, transfer, record)
}

/// Makes the copy that the call is about to issue come after the newest one, so that its record stands for both, and
/// after the newest copy back, which may still read.
#[inline(always)]
pub fn chain_copy(plugin: &Plugin, calls: &Calls, transfer: &Transfer, record: &mut CallRecord) -> Done {
    if transfer.is_only_of(record.id()) { Ok(()) } else { chain_copy_of_several(plugin, calls, transfer, record) }
}

#[inline(never)]
fn chain_copy_of_several(plugin: &Plugin, calls: &Calls, transfer: &Transfer, record: &mut CallRecord) -> Done {
    if !broken(Rule::ChainBeforeRecord) {
        wait_for_copy(plugin, transfer, record)?;
    }
    let others: Vec<_> = transfer.copied_back_by_others(record.id(), calls).collect();
    if broken(Rule::CopyAfterCopyBack) { Ok(()) } else { order_after_calls(plugin, calls, &others, record) }
}

fn wait_for_copy(plugin: &Plugin, transfer: &Transfer, record: &mut CallRecord) -> Done {
    let Some(event) = transfer.recorded_by_another(record.id(), record.calls()) else { return Ok(()) };
    wait(plugin, event, record)
}

fn wait(plugin: &Plugin, event: Event, record: &mut CallRecord) -> Done {
    // SAFETY: the event is this plugin's and lives as long as its entry or this function; the queue is the call's.
    let done = record.issue(|queue| unsafe { plugin.wait_event(event, queue) });
    if done.is_err() {
        report!("Failed to wait for event {}.", Address(event.address()));
    }
    done
}

#[inline]
fn create(plugin: &Plugin) -> Result<Option<Event>, Failed> {
    plugin.create_event().inspect_err(|_| report!("Failed to create event"))
}

#[inline]
fn record_on(plugin: &Plugin, event: Event, queue: *mut AsyncInfo) -> Done {
    // SAFETY: the event is this plugin's and lives as long as the entry; the queue is the call's, under its lock.
    let done = unsafe { plugin.record_event(event, queue) };
    if done.is_err() {
        report!("Failed to set dependence on event {}", Address(event.address()));
    }
    done
}

/// Records that `call` has just issued a copy into an entry on its `queue`; both are locked.
///
/// The event is made at the first copy. If that fails nothing is kept of it.
#[inline(always)]
pub fn record_copy(
    plugin: &Plugin,
    transfer: &mut Transfer,
    (call, calls): (CallId, &Calls),
    queue: *mut AsyncInfo,
) -> Done {
    let (event, is_new) = match transfer.event {
        Some(event) => (event, false),
        None => match create(plugin)? {
            Some(event) => (event, true),
            None => return Ok(()),
        },
    };
    if let Err(failed) = record_on(plugin, event, queue) {
        if is_new {
            destroy(plugin, event);
        }
        return Err(failed);
    }
    transfer.event = Some(event);
    if !broken(Rule::DonePerRecord) || !transfer.is_recorded() {
        transfer.set_recorded(call, calls);
    }
    Ok(())
}

/// Makes the call's later work come after all that `others` have issued so far.
///
/// Each wait is for work issued before, so that two calls which wait for each other's do not lock up.
fn order_after_calls(plugin: &Plugin, calls: &Calls, others: &[CallId], record: &mut CallRecord) -> Done {
    others.iter().filter_map(|other| calls.queue_of(*other)).try_for_each(|queue| order_after(plugin, queue, record))
}

/// The same, without waiting for a call whose queue somebody else uses or waits for. Its work, and that of those that
/// follow, may not come before then.
pub fn try_order_after_calls(
    plugin: &Plugin,
    calls: &Calls,
    others: &[CallId],
    record: &mut CallRecord,
) -> Result<Result<(), Busy>, Failed> {
    for other in others {
        match calls.try_queue_of(*other) {
            Ok(Some(queue)) => order_after(plugin, queue, record)?,
            Ok(None) => {}
            Err(busy) => return Ok(Err(busy)),
        }
    }
    Ok(Ok(()))
}

fn order_after(plugin: &Plugin, queue: Guard<'_, Queue>, record: &mut CallRecord) -> Done {
    if queue.address == 0 {
        return Ok(());
    }
    let Some(event) = create(plugin)? else { return Ok(()) };
    let mut info = AsyncInfo { queue: queue.address as *mut c_void };
    let recorded = record_on(plugin, event, &raw mut info);
    drop(queue);
    let ordered = recorded.and_then(|()| wait(plugin, event, record));
    // A queue that waits for an event has taken note of its record.
    let destroyed = destroy(plugin, event);
    ordered?;
    if destroyed { Ok(()) } else { Err(Failed(omptarget_abi::OFFLOAD_FAIL)) }
}
