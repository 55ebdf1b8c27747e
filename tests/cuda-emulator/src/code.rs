//! The result codes of the CUDA driver API that the emulator answers, and what the driver says of each.

/// A `CUresult`. A plain number, because [`EMU_FAIL`](crate::env) may ask for any.
pub type Code = u32;

/// What the emulator's own functions return.
pub type Result<T> = std::result::Result<T, Code>;

/// Declares constants, and the table that [`name`] and [`text`] read.
macro_rules! codes {
    ($($name:ident = $value:literal $text:literal)*) => {
        $(#[doc = concat!("\"", $text, "\"")] pub const $name: Code = $value;)*
        const TABLE: &[(Code, &std::ffi::CStr, &std::ffi::CStr)] = &[$(($value, cstr(concat!(stringify!($name), "\0")), cstr(concat!($text, "\0")))),*];
    };
}

const fn cstr(text: &'static str) -> &'static std::ffi::CStr {
    match std::ffi::CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a text with a zero byte in it"),
    }
}

codes! {
    CUDA_SUCCESS = 0 "no error"
    CUDA_ERROR_INVALID_VALUE = 1 "invalid argument"
    CUDA_ERROR_OUT_OF_MEMORY = 2 "out of memory"
    CUDA_ERROR_NOT_INITIALIZED = 3 "initialization error"
    CUDA_ERROR_DEINITIALIZED = 4 "driver shutting down"
    CUDA_ERROR_NO_DEVICE = 100 "no CUDA-capable device is detected"
    CUDA_ERROR_INVALID_DEVICE = 101 "invalid device ordinal"
    CUDA_ERROR_INVALID_IMAGE = 200 "device kernel image is invalid"
    CUDA_ERROR_INVALID_CONTEXT = 201 "invalid device context"
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209 "no kernel image is available for execution on the device"
    CUDA_ERROR_ECC_UNCORRECTABLE = 214 "uncorrectable ECC error encountered"
    CUDA_ERROR_UNSUPPORTED_LIMIT = 215 "limit is not supported on this architecture"
    CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND = 302 "shared object symbol not found"
    CUDA_ERROR_SHARED_OBJECT_INIT_FAILED = 303 "shared object initialization failed"
    CUDA_ERROR_OPERATING_SYSTEM = 304 "OS call failed or operation not supported on this OS"
    CUDA_ERROR_INVALID_HANDLE = 400 "invalid resource handle"
    CUDA_ERROR_NOT_FOUND = 500 "named symbol not found"
    CUDA_ERROR_NOT_READY = 600 "device not ready"
    CUDA_ERROR_ILLEGAL_ADDRESS = 700 "an illegal memory access was encountered"
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701 "too many resources requested for launch"
    CUDA_ERROR_LAUNCH_TIMEOUT = 702 "the launch timed out and was terminated"
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704 "peer access is already enabled"
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709 "context is destroyed"
    CUDA_ERROR_ASSERT = 710 "device-side assert triggered"
    CUDA_ERROR_HARDWARE_STACK_ERROR = 714 "hardware stack error"
    CUDA_ERROR_ILLEGAL_INSTRUCTION = 715 "an illegal instruction was encountered"
    CUDA_ERROR_MISALIGNED_ADDRESS = 716 "misaligned address"
    CUDA_ERROR_INVALID_ADDRESS_SPACE = 717 "operation not supported on global/shared address space"
    CUDA_ERROR_INVALID_PC = 718 "invalid program counter"
    CUDA_ERROR_LAUNCH_FAILED = 719 "unspecified launch failure"
    CUDA_ERROR_NOT_SUPPORTED = 801 "operation not supported"
    CUDA_ERROR_UNKNOWN = 999 "unknown error"
}

/// The codes after which, as CUDA documents, a context answers nothing else: "the process must be terminated".
const STICKY: [Code; 10] = [
    CUDA_ERROR_ECC_UNCORRECTABLE,
    CUDA_ERROR_ILLEGAL_ADDRESS,
    CUDA_ERROR_LAUNCH_TIMEOUT,
    CUDA_ERROR_ASSERT,
    CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUDA_ERROR_MISALIGNED_ADDRESS,
    CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUDA_ERROR_INVALID_PC,
    CUDA_ERROR_LAUNCH_FAILED,
];

/// Whether a context that met this code keeps it.
pub fn is_sticky(code: Code) -> bool {
    STICKY.contains(&code)
}

/// The constant's name, for a code that the emulator knows.
pub fn name(code: Code) -> Option<&'static std::ffi::CStr> {
    TABLE.iter().find(|(value, ..)| *value == code).map(|(_, name, _)| *name)
}

/// The driver's description, for a code that the emulator knows.
pub fn text(code: Code) -> Option<&'static std::ffi::CStr> {
    TABLE.iter().find(|(value, ..)| *value == code).map(|(.., text)| *text)
}
