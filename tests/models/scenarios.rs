//! Programs whose tasks share mapped memory as OpenMP allows, each with its right answer.

use super::calls::{Map, Program};
use super::world::{Kernel, WORD, World, spawn};
use std::sync::Arc;

const X: usize = 0x1000;
const Y: usize = 0x1800;
/// A struct of two pointers.
const S: usize = 0x2000;
const P: usize = 0x3000;
const Q: usize = 0x4000;

/// A program for a model checker.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    /// What is in memory at the start.
    memory: &'static [(usize, usize)],
    /// What is mapped while the tasks run.
    around: &'static [Map],
    /// What each task does, by its number.
    task: fn(&Program, usize),
    /// Memory at the end, for so many tasks.
    expected: fn(usize) -> Vec<(usize, usize)>,
}

const NONE: Map =
    Map { host: 0, words: 1, to: false, from: false, always: false, delete: false, member: false, pointer: None };
const TO: Map = Map { to: true, ..NONE };
const TOFROM: Map = Map { from: true, ..TO };

/// The struct with what its first or second pointer points to, as `map(tofrom: s, s.p[0:1])` makes them.
const fn whole(which: usize) -> [Map; 3] {
    [
        Map { host: S, words: 2, ..NONE },
        Map { host: S, words: 2, member: true, ..TOFROM },
        Map { host: if which == 0 { P } else { Q }, pointer: Some(S + which * WORD), member: true, ..TO },
    ]
}

/// The pointer alone, with what it points to: `map(s.p[0:1])`.
const fn one_pointer(which: usize) -> [Map; 2] {
    [
        Map { host: S + which * WORD, ..TO },
        Map { host: if which == 0 { P } else { Q }, pointer: Some(S + which * WORD), member: true, ..TO },
    ]
}

const POINTERS: &[(usize, usize)] = &[(S, P), (S + WORD, Q), (P, 9), (Q, 10)];

/// Tasks read one mapping.
pub const READERS: Scenario = Scenario {
    name: "readers",
    memory: &[(X, 7)],
    around: &[],
    task: |program, _| program.target(&[Map { host: X, ..TO }], Kernel::Expect(7)),
    expected: |_| vec![(X, 7)],
};

/// Tasks add to one mapping, each by one step on the device.
pub const ADDERS: Scenario = Scenario {
    name: "adders",
    memory: &[(X, 0)],
    around: &[],
    task: |program, _| program.target(&[Map { host: X, ..TOFROM }], Kernel::Add(1)),
    expected: |tasks| vec![(X, tasks)],
};

/// The same, each task twice.
pub const ADDERS_AGAIN: Scenario = Scenario {
    name: "adders, twice each",
    task: |program, _| {
        program.target(&[Map { host: X, ..TOFROM }], Kernel::Add(1));
        program.target(&[Map { host: X, ..TOFROM }], Kernel::Add(1));
    },
    expected: |tasks| vec![(X, 2 * tasks)],
    ..ADDERS
};

/// The tasks add to what stays mapped, and each copies it back at its end.
pub const ALWAYS: Scenario = Scenario {
    name: "adders that always copy back",
    around: &[Map { host: X, ..TO }],
    task: |program, _| program.target(&[Map { host: X, from: true, always: true, ..NONE }], Kernel::Add(1)),
    ..ADDERS
};

/// One task has its data copied back in any case, though another may take the mapping over that copies nothing back.
pub const ALWAYS_ONE: Scenario = Scenario {
    name: "one that always copies back",
    task: |program, task| match task {
        0 => program.target(&[Map { host: X, always: true, ..TOFROM }], Kernel::Add(1)),
        _ => program.target(&[Map { host: X, ..TO }], Kernel::Add(0)),
    },
    expected: |_| vec![(X, 1)],
    ..ADDERS
};

/// One task deletes what the others map and read.
pub const DELETE: Scenario = Scenario {
    name: "delete beside readers",
    memory: &[(X, 7), (Y, 8)],
    around: &[],
    task: |program, task| match task {
        0 => {
            program.enter(&[Map { host: X, ..TO }, Map { host: Y, ..TO }]);
            program.exit(&[Map { host: Y, from: true, ..NONE }, Map { host: X, delete: true, ..NONE }]);
        }
        _ => program.target(&[Map { host: X, ..TO }], Kernel::Expect(7)),
    },
    expected: |_| vec![(X, 7)],
};

/// One task lists what it gives back twice, which counts it out twice, while the others' regions use it.
pub const TWICE: Scenario = Scenario {
    name: "one item twice in an exit data",
    task: |program, task| {
        if task > 0 {
            return program.target(&[Map { host: X, ..TOFROM }], Kernel::Add(1));
        }
        program.enter(&[Map { host: X, ..TO }]);
        program.target(&[Map { host: X, ..TOFROM }], Kernel::Add(1));
        program.exit(&[Map { host: X, from: true, ..NONE }, Map { host: X, ..NONE }]);
    },
    ..ADDERS
};

/// One task copies back what it has looked up before its call is known to use it, while the others' regions take the
/// mapping over, leave it to each other, and map it anew.
pub const EXIT: Scenario = Scenario {
    name: "an exit data beside adders",
    task: |program, task| match task {
        0 => {
            program.enter(&[Map { host: X, ..TO }]);
            program.exit(&[Map { host: X, from: true, ..NONE }]);
        }
        _ => (ADDERS_AGAIN.task)(program, task),
    },
    expected: |tasks| vec![(X, 2 * (tasks - 1))],
    ..ADDERS
};

/// Tasks map a struct with a pointer in it, and the host's pointer is as before at the end.
pub const STRUCTS: Scenario = Scenario {
    name: "a struct and its pointer",
    memory: POINTERS,
    around: &[],
    task: |program, _| program.target(&whole(0), Kernel::Deref(9)),
    expected: |_| POINTERS.to_vec(),
};

/// Two members of one struct are attached by different tasks.
pub const MEMBERS: Scenario = Scenario {
    name: "two members of one struct",
    memory: POINTERS,
    around: &[],
    task: |program, task| {
        let (maps, kernel) = (whole(task % 2), Kernel::Deref(9));
        // The kernel gets the address of the struct, whose first word is only attached by the even tasks.
        if task % 2 == 0 { program.target(&maps, kernel) } else { program.target(&maps, Kernel::Add(0)) }
    },
    expected: |_| POINTERS.to_vec(),
};

/// Pointers are attached in a struct that stays mapped.
pub const ATTACHED: Scenario = Scenario {
    name: "pointers in a struct that stays",
    memory: POINTERS,
    around: &[Map { host: S, words: 2, ..TO }],
    task: |program, task| program.target(&one_pointer(task % 2), Kernel::Deref(9 + task % 2)),
    expected: |_| POINTERS.to_vec(),
};

/// The same, with what they point to there as well.
pub const ATTACHED_THERE: Scenario = Scenario {
    name: "pointers in a struct that stays, to data that stay",
    around: &[Map { host: S, words: 2, ..TO }, Map { host: P, ..TO }, Map { host: Q, ..TO }],
    ..ATTACHED
};

/// The tasks add to what a pointer in a struct points to.
pub const THROUGH: Scenario = Scenario {
    name: "adders through a pointer",
    memory: POINTERS,
    around: &[Map { host: S, words: 2, ..TO }],
    task: |program, _| {
        let [pointer, pointee] = one_pointer(0);
        program.target(&[pointer, Map { from: true, ..pointee }], Kernel::AddThrough(1));
    },
    expected: |tasks| vec![(S, P), (S + WORD, Q), (P, 9 + tasks), (Q, 10)],
};

/// One task maps the struct while others leave it, waits for them, and copies it to the device as a whole.
pub const UPDATE: Scenario = Scenario {
    name: "an update of a struct",
    memory: POINTERS,
    around: &[],
    task: |program, task| {
        if task > 0 {
            program.target(&whole(0), Kernel::Deref(9));
            return program.say_done();
        }
        let struct_and_pointee = whole(0);
        program.enter(&struct_and_pointee);
        program.wait_for_others();
        program.update_to(&struct_and_pointee[0]);
        program.target(&struct_and_pointee[..1], Kernel::Deref(9));
        program.exit(&struct_and_pointee);
    },
    expected: |_| POINTERS.to_vec(),
};

/// The tasks map the struct by a mapper, whose first component nobody counts: each copies it in, while the others' regions
/// use the pointer in it.
pub const MAPPER: Scenario = Scenario {
    name: "a struct by a mapper",
    memory: POINTERS,
    around: &[],
    task: |program, task| {
        let [_, component, pointee] = whole(0);
        program.target(&[component, pointee], Kernel::Deref(9));
        if task > 0 {
            return program.say_done();
        }
        program.wait_for_others();
        program.exit(&[Map { delete: true, ..whole(0)[0] }]);
    },
    expected: |_| POINTERS.to_vec(),
};

/// The tasks add to what they map by a mapper.
pub const MAPPER_ADDERS: Scenario = Scenario {
    name: "adders by a mapper",
    task: |program, task| {
        for _ in 0..2 {
            program.target(&[Map { host: X, member: true, ..TOFROM }], Kernel::Add(1));
        }
        if task > 0 {
            return program.say_done();
        }
        program.wait_for_others();
        program.exit(&[Map { host: X, delete: true, ..NONE }]);
    },
    ..ADDERS_AGAIN
};

/// The last to leave a struct has mapped one member only, so that LLVM's list keeps the pointer beside it. Then the struct
/// is mapped again, while what the pointer points to is where it was.
pub const OUTLIVED: Scenario = Scenario {
    name: "a struct that a member outlives",
    memory: POINTERS,
    around: &[Map { host: P, ..TO }],
    task: |program, _| {
        let member = [Map { host: S + WORD, ..TO }];
        for _ in 0..2 {
            program.target(&whole(0), Kernel::Deref(9));
            program.enter(&whole(0));
            program.enter(&member);
            program.exit(&whole(0));
            program.exit(&member);
        }
    },
    expected: |_| POINTERS.to_vec(),
};

/// All of them.
pub const ALL: [Scenario; 17] = [
    READERS,
    ADDERS,
    ADDERS_AGAIN,
    ALWAYS,
    ALWAYS_ONE,
    DELETE,
    TWICE,
    EXIT,
    STRUCTS,
    MEMBERS,
    ATTACHED,
    ATTACHED_THERE,
    THROUGH,
    UPDATE,
    MAPPER,
    MAPPER_ADDERS,
    OUTLIVED,
];

impl Scenario {
    /// One execution with so many tasks.
    ///
    /// # Panics
    ///
    /// When an answer is wrong, or the device has been misused.
    pub fn run(&self, tasks: usize) {
        let world = World::create(self.memory);
        let program = Arc::new(Program::new(&world, tasks));
        if !self.around.is_empty() {
            program.enter(self.around);
        }
        let task = self.task;
        // The first task is this thread: a model checker counts them.
        let others: Vec<_> = (1..tasks)
            .map(|number| {
                let program = Arc::clone(&program);
                spawn(move || task(&program, number))
            })
            .collect();
        task(&program, 0);
        for other in others {
            other.join().expect("a task does not panic");
        }
        if !self.around.is_empty() {
            let exit: Vec<Map> = self.around.iter().map(|map| Map { to: false, ..*map }).collect();
            program.exit(&exit);
        }
        let mut faults = world.end();
        for (address, value) in (self.expected)(tasks) {
            let found = program.host(address);
            if found != value {
                faults.push(format!("at the end {address:#x} is {found:#x}, not {value:#x}"));
            }
        }
        drop(program);
        assert!(faults.is_empty(), "{}: {faults:#?}", self.name);
    }
}
