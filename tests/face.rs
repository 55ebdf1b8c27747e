//! The built library: LLVM's sources were compiled with our face, and what they export is what LLVM exports.

use omptarget_tool::abi::{self, Export};
use omptarget_tool::build;
use omptarget_tool::core::Core;
use omptarget_tool::paths;
use std::fs;

#[test]
fn llvms_sources_read_our_headers_and_not_llvms_device_h() {
    let libs = build::ensure(Core::Rust).expect("the Rust core builds");
    let theirs = libs.tree.libomptarget().join("include/device.h");
    for source in ["api.cpp", "device.cpp", "interface.cpp", "interop.cpp", "omptarget.cpp", "rtl.cpp"] {
        let headers = libs.headers(source);
        for ours in ["device.h", "omptarget.h", "Debug.h"] {
            let ours = paths::root().join("include/llvm14").join(ours);
            assert!(headers.contains(&ours), "{source} reads {headers:?}");
        }
        assert!(!headers.contains(&theirs), "{source} reads {headers:?}");
    }
    // Of LLVM's device.cpp nothing is in the library.
    let shim = paths::root().join("cpp/llvm14/device.cpp");
    assert_eq!(libs.headers("device.cpp").first(), Some(&shim));
}

/// What a source does between taking a lock and letting it go, in lines, each time.
fn sections<'s>(source: &'s str, lock: &str) -> Vec<Vec<&'s str>> {
    let [take, let_go] = ["lock", "unlock"].map(|what| format!("{lock}.{what}();"));
    let held = source.split(&*take).skip(1).map(|rest| rest.split(&*let_go).next().unwrap_or(rest));
    held.map(|part| part.lines().map(str::trim).filter(|line| !line.is_empty()).collect()).collect()
}

#[test]
fn llvm_reads_one_value_under_the_locks_that_its_face_leaves_out() {
    let sources = build::ensure(Core::Rust).expect("the Rust core builds").tree.libomptarget().join("src");
    let read = |name: &str| fs::read_to_string(sources.join(name)).expect("a source of LLVM's");
    let api = read("api.cpp");
    let counts = sections(&api, "PM->RTLsMtx");
    assert_eq!(counts, [["size_t DevicesSize = PM->Devices.size();"]; 2]);
    let omptarget = read("omptarget.cpp");
    let (_, check) = omptarget.split_once("bool checkDeviceAndCtors(").expect("LLVM's function");
    let check = check.split("\n}\n").next().expect("its body");
    let asks = sections(check, "Device.PendingGlobalsMtx");
    assert_eq!(asks, [["bool hasPendingGlobals = Device.HasPendingGlobals;"]]);
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
