//! Link options of the shared library.

fn main() {
    // Callers probe with dlopen and dlclose, and stream threads outlive any handle: the code must stay.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete,-soname,libcuda.so.1");
}
