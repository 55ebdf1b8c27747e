//! Which core a library is built with.

/// The two cores that `libomptarget.so` can be built with.
#[derive(Clone, Copy, clap::ValueEnum, PartialEq, Eq, Hash, Debug)]
pub enum Core {
    /// The Rust core behind our C++ face.
    Rust,
    /// LLVM's own `device.cpp` and `device.h`.
    Stock,
}

impl Core {
    /// The name in paths and messages, the same as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Core::Rust => "rust",
            Core::Stock => "stock",
        }
    }
}

impl std::fmt::Display for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
