//! Codes and constants of the driver, as plain integers.

/// A `CUresult` as an integer: any value may come.
pub type Code = u32;

pub use codes::*;

/// The codes and constants that the plugin asks for.
#[allow(missing_docs)]
pub mod codes {
    use super::Code;
    pub const INVALID_VALUE: Code = 1;
    pub const DEINITIALIZED: Code = 4;
    pub const NO_DEVICE: Code = 100;
    pub const INVALID_CONTEXT: Code = 201;
    pub const NOT_FOUND: Code = 500;
    pub const CONTEXT_IS_DESTROYED: Code = 709;
    pub const PEER_ACCESS_ALREADY_ENABLED: Code = 704;

    pub const CTX_SCHED_MASK: u32 = 7;
    pub const CTX_SCHED_BLOCKING_SYNC: u32 = 4;
    pub const STREAM_NON_BLOCKING: u32 = 1;
    pub const EVENT_DEFAULT: u32 = 0;
    pub const MEM_ATTACH_GLOBAL: u32 = 1;
    pub const LIMIT_STACK_SIZE: u32 = 0;
    pub const LIMIT_MALLOC_HEAP_SIZE: u32 = 2;
    pub const FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: i32 = 0;
}
