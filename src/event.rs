//! The event API as the core sees it: one event an entry, kept, recorded after each copy to the device, waited for on
//! the queue of whoever uses the copy. The host never blocks here.
//!
//! Without events (`LIBOMPTARGET_MAP_FORCE_ATOMIC=false`, or a plugin that has none) everything succeeds at once.

use crate::device::CallRecord;
use crate::mapping::Transfer;
use crate::plugin_api::{Done, Plugin};
use crate::report::{Address, report};

/// Makes the call's later work come after the newest copy into an entry, whose lock is held.
///
/// Nothing is to be done for a copy that the call issued itself: its queue is in order.
pub fn order_after_copy(plugin: &Plugin, transfer: &Transfer, record: &mut CallRecord) -> Done {
    let Some(event) = transfer.event.filter(|_| transfer.recorded_by != record.serial()) else { return Ok(()) };
    // SAFETY: the event is this plugin's and lives as long as the entry; the queue is the call's.
    let done = unsafe { plugin.wait_event(event, record.queue()) };
    if done.is_err() {
        report!("Failed to wait for event {}.", Address(event.address()));
    }
    done
}

/// Records that the call has just issued a copy into an entry, whose lock is held.
///
/// The event is made at the first copy. If that fails nothing is kept of it.
pub fn record_copy(plugin: &Plugin, transfer: &mut Transfer, record: &mut CallRecord) -> Done {
    let (event, is_new) = match transfer.event {
        Some(event) => (event, false),
        None => match plugin.create_event() {
            Ok(Some(event)) => (event, true),
            Ok(None) => return Ok(()),
            Err(failed) => {
                report!("Failed to create event");
                return Err(failed);
            }
        },
    };
    // SAFETY: the event is this plugin's and lives as long as the entry; the queue is the call's.
    if let Err(failed) = unsafe { plugin.record_event(event, record.queue()) } {
        report!("Failed to set dependence on event {}", Address(event.address()));
        if is_new {
            crate::device::destroy(plugin, event);
        }
        return Err(failed);
    }
    transfer.event = Some(event);
    transfer.recorded_by = record.serial();
    Ok(())
}
