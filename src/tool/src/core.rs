//! Which parts the libraries are made of: each is Rust, or LLVM's own.

/// The two forms that a part has. Of `libomptarget.so` the part is the core, of the CUDA plugin all of it.
#[derive(Clone, Copy, clap::ValueEnum, PartialEq, Eq, Hash, Debug)]
pub enum Core {
    /// In Rust: the core behind our C++ face, the plugin over the driver API.
    Rust,
    /// LLVM's own: `device.cpp` and `device.h`, or the plugin that the machine has.
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

/// What is swapped in: each part for itself.
#[derive(Clone, Copy, clap::Args, PartialEq, Eq, Debug)]
pub struct Parts {
    /// The core of libomptarget.so
    #[arg(long, value_enum, default_value = "rust")]
    pub core: Core,
    /// The CUDA plugin beside it
    #[arg(long, value_enum, default_value = "rust")]
    pub plugin: Core,
}

/// A core for itself has the machine's plugins.
impl From<Core> for Parts {
    fn from(core: Core) -> Self {
        Parts { core, plugin: Core::Stock }
    }
}

impl std::fmt::Display for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} core, {} CUDA plugin", self.core, self.plugin)
    }
}
