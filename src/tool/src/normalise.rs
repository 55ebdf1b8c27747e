//! Makes the debug logs of two runs comparable.
//!
//! Addresses differ from run to run, so each becomes a name by its first appearance: `<ptr0>`, `<ptr1>` and so on. Equal
//! addresses keep equal names, so it stays visible which pointer is which. When the log says that device memory was
//! allocated or freed, the names of that range are forgotten: whether an allocator hands out the same address again says
//! nothing about the program.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// What differs between two runs of one program, or between two checkouts of it.
///
/// `Type=` is first, and stays: map types with a member number are long, but no addresses.
static VARIABLE: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"Type=0x[0-9a-f]+",
        // What a CUDA plugin's memory manager keeps of a block; only LLVM's has an address in memory.
        r"|(?<what>\b[Nn]ode (?:address )?)0x(?<node>[0-9a-f]+)\b",
        r"|\b0x(?<address>[0-9a-f]{9,16})\b",
        // clang puts the device and inode of the source file into the names of kernels and of static variables.
        r"|(?<kernel>__omp_offloading_{1,2})[0-9a-f]+_[0-9a-f]+_",
        r"|_[0-9a-f]+(?<global>_decl_tgt_ref_ptr)\b",
        // Plugins for the host write the device image to a file before they load it.
        r"|(?<temporary>/tmp/tmpfile_)[A-Za-z0-9]{6}\b",
    ))
});

/// Device memory that is new: the names that its range had belong to something that is gone.
static ALLOCATED: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"Creating new map entry with HstPtrBegin=0x[0-9a-f]+, TgtPtrBegin=0x(?<at>[0-9a-f]+), Size=(?<size>\d+)",
        r"|Allocated (?<private>\d+) bytes of target memory at 0x(?<private_at>[0-9a-f]+)",
        r"|returns device ptr 0x(?<api_at>[0-9a-f]+)",
    ))
});

/// What a mapper's components are put into: a new one for each call of a mapper, wherever LLVM's functions have their
/// stack.
static HANDLE: LazyLock<Regex> = LazyLock::new(|| regex(r"_mapper_\w+\(Handle=0x(?<at>[0-9a-f]+)\)"));

/// Device memory that has been freed.
static FREED: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"Removing map entry with HstPtrBegin=0x[0-9a-f]+, TgtPtrBegin=0x(?<at>[0-9a-f]+), Size=(?<size>\d+)",
        r"|Call to omp_target_free for device \d+ and address 0x(?<api_at>[0-9a-f]+)",
    ))
});

/// A pointer in device memory that is set. LLVM sets none that has the value already: by chance, where what it points to is
/// gone, and new memory lies there.
static SET: LazyLock<Regex> =
    LazyLock::new(|| regex(r"Update pointer \(0x(?<pointer>[0-9a-f]+)\) -> \[0x(?<value>[0-9a-f]+)\]"));

/// An argument that is passed by value and smaller than a pointer, and where its value is logged again. clang sets only
/// as many bytes as it has: the others are what the stack held before.
static BY_VALUE: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"(?<entry>Entry +\d+: )Base=0x(?<base>[0-9a-f]+), Begin=0x(?<begin>[0-9a-f]+), Size=(?<size>[1-7]),",
        r" Type=0x(?<type>[0-9a-f]+)",
        r"|(?<forwarding>first-private value )0x(?<value>[0-9a-f]+)",
    ))
});

/// What a program passes to `__tgt_push_mapper_component`, which LLVM's own part of the library prints and keeps. LLVM's
/// test of it passes variables that nobody set: what the stack held before.
static PUSHED: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?<adds>adds an entry \()Base=0x[0-9a-f]+, Begin=0x[0-9a-f]+, Size=-?\d+, Type=0x[0-9a-f]+")
});

/// The bit of a map type that says that an argument is passed by value: LLVM's `OMP_TGT_MAPTYPE_LITERAL`.
const LITERAL: u64 = 0x100;

/// What starts a line, in a write of its own, so that the lines of threads mix here.
static PREFIX: LazyLock<Regex> =
    LazyLock::new(|| regex(r"Libomptarget --> |Target \w+ RTL --> |Libomptarget error: |\b\w+ device \d+ info: "));

/// Reference counts, with what was just done to them.
static COUNT: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?<what>\b(?:Dyn|Hold)RefCount=)(?:\d+|INF)(?: \([a-z, ]+\))?"));

/// A row of the table of mappings: two addresses, size, two reference counts, name.
static ROW: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^(?<start><ptr\d+> <ptr\d+> \d+ +)(?:\d+|INF|-) +(?:\d+|INF|-) +(?<rest>.*)$"));

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is a constant that the tests use")
}

/// Where a process whose code is position independent has its memory. Smaller and larger values in the log are data.
const ADDRESSES: Range<u64> = 1 << 32..1 << 47;

/// Such a row as it is logged, after the start of its line.
static RAW_ROW: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?:--> |info: )0x[0-9a-f]+ 0x[0-9a-f]+ \d+ +(?:\d+|INF|-) +(?:\d+|INF|-) +"));

/// The names given so far.
#[derive(Default)]
struct Names {
    live: BTreeMap<u64, usize>,
    given: usize,
    nodes: BTreeMap<u64, usize>,
    nodes_given: usize,
    /// How many bytes a call of OpenMP's API has asked for.
    requested: u64,
    /// A mapper has been called, and has put nothing anywhere yet.
    mapper_begins: bool,
    /// The values of pointers that have been set, and whether the memory that they point to is still there.
    pointers: BTreeMap<u64, (u64, bool)>,
}

impl Names {
    fn name(&mut self, address: u64) -> String {
        let number = *self.live.entry(address).or_insert_with(|| {
            self.given += 1;
            self.given - 1
        });
        format!("<ptr{number}>")
    }

    fn forget(&mut self, start: u64, size: u64) {
        // Even memory of no bytes has an address.
        let end = start.saturating_add(size.max(1));
        self.live.retain(|address, _| !(start..end).contains(address));
        self.pointers.retain(|address, _| !(start..end).contains(address));
        let values = self.pointers.values_mut().filter(|(value, _)| (start..end).contains(value));
        values.for_each(|(_, is_there)| *is_there = false);
    }

    /// Whether a line sets a pointer that has pointed to what is gone.
    fn sets_again(&mut self, line: &str) -> bool {
        let Some(found) = SET.captures(line) else { return false };
        let before = self.pointers.insert(hex(&found["pointer"]), (hex(&found["value"]), true));
        before.is_some_and(|(_, is_there)| !is_there)
    }

    /// A line of a log with its names; forgets those of memory that is new or gone. Nothing if it may stand there by chance.
    fn line(&mut self, line: &str) -> String {
        if self.sets_again(line) {
            return String::new();
        }
        if let Some(size) = line.split(" requesting ").nth(1).and_then(|rest| rest.split(" bytes").next()) {
            self.requested = size.parse().unwrap_or(0);
        }
        if let Some(found) = ALLOCATED.captures(line) {
            let (at, size) = range(&found, self.requested);
            self.forget(at, size);
        }
        self.mapper_begins |= line.contains("Calling the mapper function ");
        if self.mapper_begins
            && let Some(found) = HANDLE.captures(line)
        {
            self.mapper_begins = false;
            self.forget(range(&found, 0).0, 0);
        }
        let named = self.apply(line);
        if let Some(found) = FREED.captures(line) {
            let (at, size) = range(&found, 0);
            self.forget(at, size);
        }
        named
    }

    /// A line with the names that there are, and `?` for new ones.
    fn known(&self, line: &str) -> String {
        let replace = |found: &Captures| {
            let digits = found.name("address").map_or("", |digits| digits.as_str());
            self.live.get(&hex(digits)).map_or("?".to_owned(), |number| format!("<ptr{number:06}>"))
        };
        VARIABLE.replace_all(line, replace).into_owned()
    }

    fn apply(&mut self, line: &str) -> String {
        let replace = |found: &Captures| {
            let whole = &found[0];
            if let Some(digits) = found.name("node") {
                let (node, what) = (hex(digits.as_str()), &found["what"]);
                if what.ends_with("address ") {
                    // It is new, wherever it is.
                    self.nodes.remove(&node);
                }
                let number = *self.nodes.entry(node).or_insert_with(|| {
                    self.nodes_given += 1;
                    self.nodes_given - 1
                });
                format!("{what}<node{number}>")
            } else if let Some(digits) = found.name("address") {
                match hex(digits.as_str()) {
                    address if ADDRESSES.contains(&address) => self.name(address),
                    _ => whole.to_owned(),
                }
            } else if let Some(kernel) = found.name("kernel") {
                format!("{}<file>_", kernel.as_str())
            } else if let Some(global) = found.name("global") {
                format!("_<file>{}", global.as_str())
            } else if let Some(temporary) = found.name("temporary") {
                format!("{}<random>", temporary.as_str())
            } else {
                whole.to_owned()
            }
        };
        VARIABLE.replace_all(line, replace).into_owned()
    }
}

fn hex(digits: &str) -> u64 {
    u64::from_str_radix(digits, 16).unwrap_or(0)
}

/// The range that a match of [`ALLOCATED`] or [`FREED`] speaks of. `requested` is the size for a call of OpenMP's API,
/// which logs it elsewhere.
fn range(found: &Captures, requested: u64) -> (u64, u64) {
    let group = |name| found.name(name).map(|m| m.as_str());
    let number = |name| group(name).and_then(|digits| digits.parse().ok());
    let at = ["at", "private_at", "api_at"].into_iter().find_map(group).map_or(0, hex);
    (at, number("size").or_else(|| number("private")).unwrap_or(requested))
}

/// The log without the bytes that nobody set: of arguments that are passed by value, and of [`PUSHED`].
fn without_garbage(text: &str) -> String {
    let text = PUSHED.replace_all(text, "${adds}<given>");
    let mut values = BTreeMap::new();
    let replace = |found: &Captures| {
        let number = |name: &str| found.name(name).map_or(0, |digits| hex(digits.as_str()));
        let value = |all: u64, bytes: u64| all & ((1 << (8 * bytes)) - 1);
        if let Some(entry) = found.name("entry") {
            let (base, begin, size) = (number("base"), number("begin"), number("size"));
            if number("type") & LITERAL != 0 {
                values.insert(base, value(base, size));
                let (base, begin) = (value(base, size), value(begin, size));
                let (entry, kind) = (entry.as_str(), &found["type"]);
                return format!("{entry}Base=0x{base:016x}, Begin=0x{begin:016x}, Size={size}, Type=0x{kind}");
            }
        } else if let Some(value) = values.get(&number("value")) {
            return format!("{}0x{value:016x}", &found["forwarding"]);
        }
        found[0].to_owned()
    };
    BY_VALUE.replace_all(&text, replace).into_owned()
}

/// The log with each address replaced by a name: two runs of a program with one thread give the same text.
///
/// What counts as an address: 9 to 16 hexadecimal digits whose value a position-independent process can have. Null, sizes,
/// counts, map types, values of arguments and `(nil)` stay. Also replaced: clang's file numbers in the names of kernels,
/// which differ between checkouts, and a plugin's temporary file.
pub fn log(text: &str) -> String {
    let text = without_garbage(text);
    let mut names = Names::default();
    text.split_inclusive('\n').map(|line| names.line(line)).collect()
}

/// The same, for runs whose heaps differ: the rows of a table of mappings, which come by address, are sorted by their names.
pub fn log_with_sorted_tables(text: &str) -> String {
    let text = without_garbage(text);
    let mut names = Names::default();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut result = String::with_capacity(text.len());
    for part in lines.chunk_by(|a, b| RAW_ROW.is_match(a) && RAW_ROW.is_match(b)) {
        let mut part = part.to_vec();
        // Rows that are all new stay as they are.
        part.sort_by_cached_key(|line| names.known(line));
        part.into_iter().for_each(|line| result.push_str(&names.line(line)));
    }
    result
}

/// The log of a program with threads as its set of lines, sorted, each once.
///
/// LLVM writes the start of a line and its text apart, so threads mix them: every start is deleted. Reference counts are
/// blanked, since they depend on who came first, and addresses are named line by line.
pub fn lines_as_set(text: &str) -> Vec<String> {
    let text = without_garbage(text);
    let text = PREFIX.replace_all(&text, "");
    let line = |line: &str| {
        let named = Names::default().apply(line);
        let counted = COUNT.replace_all(&named, "${what}?");
        ROW.replace(&counted, "${start}? ? ${rest}").trim_end().to_owned()
    };
    let set: BTreeSet<String> = text.lines().map(line).filter(|line| !line.is_empty()).collect();
    set.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_addresses_get_equal_names() {
        assert_eq!(
            log("a 0x00005571c0ffee00 b 0x7ffc12345678\nc 0x7ffc12345678, 0x00005571c0ffee00\n"),
            "a <ptr0> b <ptr1>\nc <ptr1>, <ptr0>\n"
        );
    }

    #[test]
    fn an_address_inside_another_range_is_a_name_of_its_own() {
        assert_eq!(log("0x00007f0000001000 0x00007f0000001008"), "<ptr0> <ptr1>");
    }

    #[test]
    fn a_pointer_to_what_is_gone_may_be_set_again_or_not() {
        let new = |at: &str| {
            format!("Creating new map entry with HstPtrBegin=0x00005571c0ffee00, TgtPtrBegin={at}, Size=4, Name=x\n")
        };
        let set = |at: &str| format!("Update pointer (0x00007f0000001000) -> [{at}]\n");
        let gone = |at: &str| {
            format!("Removing map entry with HstPtrBegin=0x00005571c0ffee00, TgtPtrBegin={at}, Size=4, Name=x\n")
        };
        let (one, two) = ("0x00007f0000002000", "0x00007f0000003000");
        let same = log(&[new(one), set(one), gone(one), new(one)].concat());
        let other = log(&[new(one), set(one), gone(one), new(two), set(two)].concat());
        assert_eq!(same, other);
        assert_eq!(same.matches("Update").count(), 1);
        // While it is there, a pointer to it is not set by chance.
        let kept = log(&[new(one), set(one), new(two), set(two)].concat());
        assert_eq!(kept.matches("Update").count(), 2);
    }

    #[test]
    fn what_a_program_pushes_is_left_out() {
        let line = |base, size| {
            log(&format!(
                "__tgt_push_mapper_component(Handle=0x00007f0000001000) adds an entry (Base={base}, \
                 Begin=0x00007f0000002000, Size={size}, Type=0x0, Name=unknown).\n"
            ))
        };
        let expected = "__tgt_push_mapper_component(Handle=<ptr0>) adds an entry (<given>, Name=unknown).\n";
        assert_eq!(line("0x0000000000000004", "4"), expected);
        assert_eq!(line("0x00007f0000003000", "-140737145316528"), expected);
    }

    #[test]
    fn nodes_have_names_of_their_own() {
        let log_of = |one: &str, two: &str| {
            log(&format!(
                "Node address {one}, target pointer 0x00007f0000001000, size 8\nFind one node {two} in the bucket.\n\
                 Found its node {one}. Insert it to bucket 1.\n"
            ))
        };
        let expected = "Node address <node0>, target pointer <ptr0>, size 8\nFind one node <node1> in the bucket.\n\
                        Found its node <node0>. Insert it to bucket 1.\n";
        assert_eq!(log_of("0x0000000000010000", "0x0000000000010010"), expected);
        assert_eq!(log_of("0x00005571c0ffee00", "0x00005571c0ffee80"), expected);
        assert_eq!(
            log("Node address 0x10\nnode 0x10\nNode address 0x10\n"),
            "Node address <node0>\nnode <node0>\nNode address <node1>\n"
        );
    }

    #[test]
    fn rows_of_a_table_may_be_sorted() {
        let row = |host: &str, name: &str| {
            format!("Libomptarget device 0 info: {host} 0x00007f0000001000 8        1           0            {name}\n")
        };
        let (one, two) = ("0x00005571c0ffee00", "0x00005571c0ffee80");
        let table = |rows: [String; 2]| format!("first {one} then {two}\n{}end {two}\n", rows.concat());
        let (up, down) = (table([row(one, "x"), row(two, "x")]), table([row(two, "x"), row(one, "x")]));
        assert_ne!(log(&up), log(&down));
        assert_eq!(log_with_sorted_tables(&up), log_with_sorted_tables(&down));
        assert_eq!(log_with_sorted_tables(&up), log(&up));
        // What a row says still counts, and only rows are sorted.
        let other = table([row(two, "x"), row(one, "y")]);
        assert_ne!(log_with_sorted_tables(&up), log_with_sorted_tables(&other));
        let lines = format!("b {one}\na {one}\n");
        assert_eq!(log_with_sorted_tables(&lines), log(&lines));
    }

    #[test]
    fn what_is_no_address_stays() {
        for text in [
            "null 0x0000000000000000 (nil)",
            "Type=0x21, Type=0x2000000000013",
            "Forwarding first-private value 0x000000000000000a to",
            "Forwarding first-private value 0x4059000000000000 to",
            "HstPtrBegin=0xfffffffffffffff8",
            "checksum 0xdeadbeef of 0x00005571c0ffee0000005571c0ffee00",
            "requesting 140735000000000 bytes",
            "x0x00005571c0ffee00",
        ] {
            assert_eq!(log(text), text);
        }
    }

    #[test]
    fn bytes_that_nobody_set_do_not_count() {
        let log_of = |garbage: &str| {
            let value = format!("0x{garbage}00000007");
            format!(
                "Entry  3: Base={value}, Begin={value}, Size=4, Type=0x320, Name=n\n\
                 Forwarding first-private value {value} to the target construct\n\
                 Entry  4: Base=0x00005571c0ffee00, Begin=0x00005571c0ffee00, Size=4, Type=0x23, Name=x\n\
                 Entry  5: Base=0x4059000000000000, Begin=0x4059000000000000, Size=8, Type=0x320, Name=d\n"
            )
        };
        let expected = "Entry  3: Base=0x0000000000000007, Begin=0x0000000000000007, Size=4, Type=0x320, Name=n\n\
                        Forwarding first-private value 0x0000000000000007 to the target construct\n\
                        Entry  4: Base=<ptr0>, Begin=<ptr0>, Size=4, Type=0x23, Name=x\n\
                        Entry  5: Base=0x4059000000000000, Begin=0x4059000000000000, Size=8, Type=0x320, Name=d\n";
        for garbage in ["00000000", "000055aa", "deadbeef"] {
            assert_eq!(log(&log_of(garbage)), expected);
            assert_eq!(lines_as_set(&log_of(garbage)).len(), 4);
        }
    }

    #[test]
    fn names_of_files_do_not_depend_on_the_checkout() {
        assert_eq!(log("__omp_offloading_fe00_98e74a_main_l22"), "__omp_offloading_<file>_main_l22");
        assert_eq!(log("__omp_offloading__fe00_98e74a_x_l9_ctor"), "__omp_offloading__<file>_x_l9_ctor");
        assert_eq!(log("counter_98e74a_decl_tgt_ref_ptr"), "counter_<file>_decl_tgt_ref_ptr");
        assert_eq!(log("/tmp/tmpfile_aB3dE6: cannot"), "/tmp/tmpfile_<random>: cannot");
    }

    #[test]
    fn memory_given_out_again_gets_new_names() {
        let new = "Creating new map entry with HstPtrBegin=0x00007ffc00000000, TgtPtrBegin=";
        let old = "Removing map entry with HstPtrBegin=0x00007ffc00000000, TgtPtrBegin=";
        let reused = format!(
            "{new}0x0000557100000010, Size=16, D\ninside 0x0000557100000018\n{old}0x0000557100000010, Size=16, N\n\
             inside 0x0000557100000018 beside 0x0000557100000020\n{new}0x0000557100000010, Size=16, D\n"
        );
        let fresh = format!(
            "{new}0x0000557100000010, Size=16, D\ninside 0x0000557100000018\n{old}0x0000557100000010, Size=16, N\n\
             inside 0x0000557100001018 beside 0x0000557100000020\n{new}0x0000557100002010, Size=16, D\n"
        );
        assert_eq!(log(&reused), log(&fresh));
        assert!(log(&reused).ends_with("HstPtrBegin=<ptr0>, TgtPtrBegin=<ptr5>, Size=16, D\n"));
    }

    #[test]
    fn the_memory_of_the_api_and_of_private_arrays_is_new_too() {
        assert_eq!(
            log("Call to omp_target_alloc for device 0 requesting 16 bytes\n\
                 omp_target_alloc returns device ptr 0x0000557100000010\nin it 0x0000557100000018\n\
                 Call to omp_target_free for device 0 and address 0x0000557100000010\n\
                 Call to omp_target_alloc for device 0 requesting 16 bytes\n\
                 omp_target_alloc returns device ptr 0x0000557100000010\nin it 0x0000557100000018\n\
                 Allocated 8 bytes of target memory at 0x0000557100000018 for\n"),
            "Call to omp_target_alloc for device 0 requesting 16 bytes\n\
             omp_target_alloc returns device ptr <ptr0>\nin it <ptr1>\n\
             Call to omp_target_free for device 0 and address <ptr0>\n\
             Call to omp_target_alloc for device 0 requesting 16 bytes\n\
             omp_target_alloc returns device ptr <ptr2>\nin it <ptr3>\n\
             Allocated 8 bytes of target memory at <ptr4> for\n"
        );
    }

    #[test]
    fn what_a_mappers_components_are_put_into_is_new() {
        assert_eq!(
            log("Calling the mapper function 0x0000557100000010\n\
                 __tgt_push_mapper_component(Handle=0x00007ffd11112222) adds an entry\n\
                 __tgt_mapper_num_components(Handle=0x00007ffd11112222) returns 1\n\
                 Calling the mapper function 0x0000557100000010\n\
                 __tgt_mapper_num_components(Handle=0x00007ffd11112222) returns 0\n"),
            "Calling the mapper function <ptr0>\n\
             __tgt_push_mapper_component(Handle=<ptr1>) adds an entry\n\
             __tgt_mapper_num_components(Handle=<ptr1>) returns 1\n\
             Calling the mapper function <ptr0>\n\
             __tgt_mapper_num_components(Handle=<ptr2>) returns 0\n"
        );
    }

    #[test]
    fn threads_may_mix_their_lines() {
        let mixed = "Libomptarget --> Libomptarget --> Device 0 is ready to use.\nUse default device id 0\n\
                     Target CUDA RTL --> Libomptarget --> at 0x00007f0000001000\nat 0x00007f0000002000\n";
        assert_eq!(lines_as_set(mixed), ["Device 0 is ready to use.", "Use default device id 0", "at <ptr0>"]);
    }

    #[test]
    fn a_set_has_no_reference_counts() {
        let text = "Libomptarget device 0 info: x, DynRefCount=2 (deferred final decrement), HoldRefCount=INF, N\n\
                    Libomptarget device 0 info: x, DynRefCount=1, HoldRefCount=0 (incremented), N\n\
                    Libomptarget --> 0x00007ffe6a2f1000 0x0000557100000010 8192     1           0            v at f:1:2\n\
                    Libomptarget --> 0x00007ffe6a2f1000 0x0000557100000010 8192     INF         -            v at f:1:2\n";
        assert_eq!(
            lines_as_set(text),
            ["<ptr0> <ptr1> 8192     ? ? v at f:1:2", "x, DynRefCount=?, HoldRefCount=?, N"]
        );
    }
}
