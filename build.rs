//! Generates the C++ half of the bridge and compiles it into the library.
//!
//! The headers for the face's shim are left in `<OUT_DIR>/cxxbridge/include`.

/// One bridge a C++ class.
const BRIDGES: [&str; 3] = ["src/bridge/device.rs", "src/bridge/entry.rs", "src/bridge/list.rs"];

fn main() {
    cxx_build::CFG.include_prefix = "omprs";
    cxx_build::bridges(BRIDGES).include("include").std("c++14").flag("-fno-exceptions").compile("omprs");
    for file in BRIDGES {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rerun-if-changed=include/omptarget/aliases.h");
}
