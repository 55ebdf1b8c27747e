//! The built library: LLVM's sources were compiled with our face, and what they export is what LLVM exports.

use omptarget_tool::abi::{self, Export};
use omptarget_tool::build;
use omptarget_tool::core::Core;
use omptarget_tool::paths;

#[test]
fn llvms_sources_read_our_device_h_and_not_llvms() {
    let libs = build::ensure(Core::Rust).expect("the Rust core builds");
    let ours = paths::root().join("include/llvm14/device.h");
    let theirs = libs.tree.libomptarget().join("include/device.h");
    for source in ["api.cpp", "device.cpp", "interface.cpp", "interop.cpp", "omptarget.cpp", "rtl.cpp"] {
        let headers = libs.headers(source);
        assert!(headers.contains(&ours), "{source} reads {headers:?}");
        assert!(!headers.contains(&theirs), "{source} reads {headers:?}");
    }
    // Of LLVM's device.cpp nothing is in the library.
    let shim = paths::root().join("cpp/llvm14/device.cpp");
    assert_eq!(libs.headers("device.cpp").first(), Some(&shim));
}

#[test]
fn exports_equal_stocks() {
    let exports = |core| {
        let libs = build::ensure(core).expect("the library builds");
        abi::exports(&libs.library()).expect("exports")
    };
    let rust = exports(Core::Rust);
    assert_eq!(rust, exports(Core::Stock));
    assert_eq!(rust.iter().filter(|export| matches!(export, Export::Function(_))).count(), 51);
    assert!(rust.contains(&Export::Node("VERS1.0".to_owned())));
    assert!(rust.contains(&Export::Soname("libomptarget.so".to_owned())));
    assert_eq!(rust.len(), 53);
}
