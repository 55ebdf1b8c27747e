//! The C types and codes that libomptarget and its plugins exchange, as LLVM 14's `omptarget.h` and
//! `omptargetplugin.h` lay them out.
//!
//! Sizes and offsets are checked here at compile time, and against LLVM's headers by the C++ face's `static_assert`s.
