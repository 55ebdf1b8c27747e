//! The `omptarget` command line as a library, so that integration tests can call its parts.
