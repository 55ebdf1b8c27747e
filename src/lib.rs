//! The inside of LLVM's libomptarget.
