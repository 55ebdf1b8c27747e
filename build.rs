//! Generates the C++ half of the bridge and compiles it into the library.
//!
//! The headers for the face's shim are left in `<OUT_DIR>/cxxbridge/include`.

/// One bridge a C++ class.
const BRIDGES: [&str; 3] = ["src/bridge/device.rs", "src/bridge/entry.rs", "src/bridge/list.rs"];

fn main() {
    // A model checker takes the place of the locks, and there is no C++.
    println!("cargo:rustc-check-cfg=cfg(model)");
    if cfg!(any(feature = "loom", feature = "shuttle")) {
        println!("cargo:rustc-cfg=model");
        return;
    }
    cxx_build::CFG.include_prefix = "omprs";
    cxx_build::bridges(BRIDGES)
        .file("cpp/thread.cpp")
        .include("include")
        .std("c++14")
        .flag("-fno-exceptions")
        .force_frame_pointer(false)
        .compile("omprs");
    for file in BRIDGES {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rerun-if-changed=cpp/thread.cpp");
    println!("cargo:rerun-if-changed=include/omptarget/aliases.h");
    println!("cargo:rerun-if-changed=include/omptarget/requests.h");
}
